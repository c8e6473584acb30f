// The series of a run as charts: over time, and as distributions.

import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import type { Index, Series } from "./data";

interface Line {
  label: string;
  of: string; // the target; each target has one colour
  before: boolean;
  points: [number, number][];
}
interface ChartOf {
  name: string;
  unit: string;
  form: Series["form"];
  lines: Line[];
}

export function chartsOf(index: Index): ChartOf[] {
  const charts = new Map<string, ChartOf>();
  index.runs.forEach((run, number) => {
    for (const each of run.series) {
      const key = `${each.name}\n${each.form}\n${each.unit}`;
      let chart = charts.get(key);
      if (!chart) charts.set(key, (chart = { name: each.name, unit: each.unit, form: each.form, lines: [] }));
      const target = run.targets.find((one) => one.id === each.target);
      const of = target ? [target.title, target.about].filter(Boolean).join(" · ") : (each.target ?? "");
      const when = index.runs.length > 1 ? (number ? "now" : "before") : "";
      const before = index.runs.length > 1 && number === 0;
      chart.lines.push({ label: [of, when].filter(Boolean).join(", ") || each.name, of, before, points: each.points });
    }
  });
  return [...charts.values()];
}

export function Charts({ index, dark }: { index: Index; dark: boolean }) {
  const charts = useMemo(() => chartsOf(index), [index]);
  return (
    <div class="charts">
      {charts.map((chart) => (
        <Chart key={`${chart.name} ${chart.form} ${dark}`} chart={chart} />
      ))}
    </div>
  );
}

const COLOURS = 6;
const BEFORE = [6, 4]; // a dash
/** The position of a percentile: each further nine takes the same width; the maximum comes last. */
function placing(chart: ChartOf): (percentile: number) => number {
  const place = (percentile: number): number => -Math.log10(1 - percentile / 100);
  const below = chart.lines.flatMap((line) => line.points.map(([at]) => at)).filter((at) => at < 100);
  const last = place(Math.max(0, ...below)) + 0.5;
  return (percentile) => (percentile < 100 ? place(percentile) : last);
}
const NINES = [0, 50, 90, 99, 99.9, 99.99, 99.999, 100];
const percentile = (at: number): string => (at === 100 ? "max" : `p${at}`);

const ticks = (place: (percentile: number) => number, from: number, to: number): number[] =>
  NINES.filter((each) => place(each) >= from - 1e-9 && place(each) <= to + 1e-9).sort((one, two) => place(one) - place(two));

function Chart({ chart }: { chart: ChartOf }) {
  const box = useRef<HTMLDivElement>(null);
  const spread = chart.form === "percentiles";
  const place = useMemo(() => placing(chart), [chart]);
  const data = useMemo(() => {
    const x = (value: number) => (spread ? place(value) : value);
    const tables = chart.lines.map(
      ({ points }): uPlot.AlignedData => [points.map(([at]) => x(at)), points.map(([, value]) => value)],
    );
    return uPlot.join(tables);
  }, [chart]);
  useEffect(() => {
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
    const wide = () => Math.max(260, box.current!.clientWidth);
    const targets = [...new Set(chart.lines.map((line) => line.of))];
    const plot = new uPlot(
      {
        width: wide(),
        height: 240,
        legend: { live: false, markers: { width: 2, dash: (_, at) => (chart.lines[at - 1]?.before ? "dashed" : "solid") } },
        cursor: { drag: { x: true, y: false } },
        scales: { x: { time: false }, y: spread ? { range: (_, __, most) => [0, most * 1.05 || 1] } : {} },
        axes: [
          spread
            ? { ...axis, splits: (_, __, from, to) => ticks(place, from, to).map(place), values: (_, splits) => ticks(place, splits[0]!, splits.at(-1)!).map(percentile) }
            : { ...axis, values: (_, splits) => splits.map((each) => `${each} s`) },
          { ...axis, size: 64, values: (_, splits) => splits.map((each) => each.toLocaleString("en", { maximumFractionDigits: 3 })) },
        ],
        series: [
          {},
          ...chart.lines.map((line) => ({
            label: line.label,
            stroke: colour(`--chart-${(targets.indexOf(line.of) % COLOURS) + 1}`),
            width: 2,
            dash: line.before ? BEFORE : [],
            spanGaps: true,
            points: { show: line.points.length < 40, size: 5 },
          })),
        ],
      },
      data,
      box.current!,
    );
    const resized = new ResizeObserver(() => plot.setSize({ width: wide(), height: 240 }));
    resized.observe(box.current!);
    return () => {
      resized.disconnect();
      plot.destroy();
    };
  }, [data]);
  return (
    <figure class="chart">
      <figcaption>
        {chart.name} <small>{[chart.unit, spread ? "by percentile" : "over time"].filter(Boolean).join(", ")}</small>
      </figcaption>
      <div ref={box} role="img" aria-label={`${chart.name} in ${chart.unit}; the table below has the figures`} />
      <details>
        <summary>Figures</summary>
        <div class="matrix-scroll" tabIndex={0} role="region" aria-label={`Figures of ${chart.name}`}>
          <table class="plain">
            <thead>
              <tr>
                <th scope="col">{spread ? "percentile" : "seconds"}</th>
                {chart.lines.map((line) => (
                  <th scope="col">{line.label}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {figures(chart).map(([at, values]) => (
                <tr>
                  <th scope="row">{at}</th>
                  {values.map((value) => (
                    <td>{value === undefined ? "" : value.toLocaleString("en", { maximumFractionDigits: 4 })}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </figure>
  );
}

const MOST = 200; // rows

function figures(chart: ChartOf): [number, (number | undefined)[]][] {
  const lines = chart.lines.map((line) => new Map(line.points));
  const at = [...new Set(chart.lines.flatMap((line) => line.points.map(([x]) => x)))].sort((one, two) => one - two);
  const step = Math.ceil(at.length / MOST);
  return at.filter((_, place) => place % step === 0).map((x) => [x, lines.map((line) => line.get(x))]);
}
