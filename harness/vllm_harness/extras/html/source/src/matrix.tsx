// The matrix of targets and groups.

import { useMemo, useRef, useState } from "preact/hooks";
import { ALL, OUTCOMES, WORD, cellKey, cellsOf, shortNames, type Cell, type Entry } from "./cases";
import type { Index, Target } from "./data";
import { SIGN, many } from "./parts";

export interface RowOf {
  id: string;
  target: Target;
}

/** The rows: the targets of the run, and the targets that only the earlier run has. */
export function rowsOf(index: Index): RowOf[] {
  const [now, before] = [index.runs.at(-1)!, index.runs.length > 1 ? index.runs[0] : undefined];
  const paired = new Set(now.targets.map((target) => target.partner));
  const gone = (before?.targets ?? []).filter((target) => !paired.has(target.id));
  return [...now.targets.map((target) => ({ id: target.id, target })), ...gone.map((target) => ({ id: `was:${target.id}`, target }))];
}

const describe = (cell: Cell): string =>
  [
    ...OUTCOMES.filter((each) => cell.counts[each]).map((each) => `${cell.counts[each]} ${WORD[each]}`),
    ...(["worse", "better", "gone"] as const).filter((each) => cell.changes[each]).map((each) => `${cell.changes[each]} ${WORD[each]}`),
  ].join(", ") || "none";

/** The folders of groups, in order, and the number of groups in each. */
function foldersOf(names: string[]): [string, number][] {
  const found: [string, number][] = [];
  for (const name of names) {
    const folder = name.split("/").slice(0, -1).join("/");
    const last = found.at(-1);
    if (last?.[0] === folder) last[1]++;
    else found.push([folder, 1]);
  }
  return found;
}

interface Props {
  index: Index;
  entries: Entry[];
  row: string;
  group: string;
  onCell: (row: string, group: string, cell: Cell | undefined) => void;
}

export function Matrix({ index, entries, row, group, onCell }: Props) {
  const rows = useMemo(() => rowsOf(index), [index]);
  const [groups, names] = useMemo(() => {
    const found = [...new Set(index.runs.flatMap((run) => run.groups))];
    const short = shortNames(found);
    return [found.sort((one, two) => (short.get(one)! < short.get(two)! ? -1 : 1)), short];
  }, [index]);
  const cells = useMemo(() => cellsOf(entries), [entries]);
  const shownRows = rows.filter((each) => cells.has(cellKey(each.id, ALL)));
  const shownGroups = groups.filter((each) => shownRows.some((row) => cells.has(cellKey(row.id, each))));
  const folders = foldersOf(shownGroups.map((each) => names.get(each)!));
  const table = useRef<HTMLTableElement>(null);
  const [at, setAt] = useState<[number, number]>([0, 0]);
  const focus = [Math.min(at[0], shownRows.length - 1), Math.min(at[1], shownGroups.length)];
  const moved = (event: KeyboardEvent): void => {
    const step = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
    const edge = { Home: 0, End: shownGroups.length }[event.key];
    if (!step && edge === undefined) return;
    event.preventDefault();
    const next: [number, number] = step
      ? [Math.max(0, Math.min(shownRows.length - 1, focus[0]! + step[0]!)), Math.max(0, Math.min(shownGroups.length, focus[1]! + step[1]!))]
      : [focus[0]!, edge!];
    setAt(next);
    table.current?.querySelector<HTMLElement>(`[data-at="${next[0]}-${next[1]}"]`)?.focus();
  };
  if (!shownRows.length) return <p class="nothing">No case matches the filter.</p>;
  const button = (each: RowOf, name: string, place: [number, number]) => {
    const cell = cells.get(cellKey(each.id, name));
    const chosen = row === each.id && (name === ALL ? !group : group === name);
    const of = `${each.target.title} ${each.target.about}, ${name === ALL ? "all groups" : names.get(name)}`;
    return (
      <button
        type="button"
        class={`cell ${cell?.worst ?? "empty"}${chosen ? " chosen" : ""}`}
        data-at={place.join("-")}
        tabIndex={focus[0] === place[0] && focus[1] === place[1] ? 0 : -1}
        aria-pressed={chosen}
        aria-label={`${of}: ${cell ? describe(cell) : "no case"}`}
        title={cell ? describe(cell) : "no case"}
        disabled={!cell}
        onFocus={() => setAt(place)}
        onClick={() => onCell(each.id, name === ALL ? "" : name, cell)}
      >
        {cell && <CellText cell={cell} />}
      </button>
    );
  };
  return (
    <div class="matrix-scroll">
      <table class={`matrix${shownGroups.length > 14 ? " dense" : ""}${index.runs.length > 1 ? " compared" : ""}`} ref={table} onKeyDown={moved}>
        <caption class="unseen">Targets and groups of cases. The arrow keys move; Enter opens.</caption>
        <thead>
          {folders.length > 1 && (
            <tr class="folders">
              <td colSpan={2} class="corner" />
              {folders.map(([folder, count]) => (
                <th scope="colgroup" colSpan={count}>
                  <span>{folder}</span>
                </th>
              ))}
            </tr>
          )}
          <tr>
            <th scope="col" class="corner">
              {many(shownRows.length, "target")}
            </th>
            <th scope="col" class="upright all">
              <span>all</span>
            </th>
            {shownGroups.map((each) => (
              <th scope="col" class="upright" title={each}>
                <span>{folders.length > 1 ? names.get(each)!.split("/").pop() : names.get(each)}</span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shownRows.map((each, down) => (
            <tr class={row === each.id ? "chosen" : ""}>
              <th scope="row">
                <span class="row-title">{each.target.title}</span>
                {each.target.about && <span class="row-about">{each.target.about}</span>}
              </th>
              <td class="all">{button(each, ALL, [down, 0])}</td>
              {shownGroups.map((name, across) => (
                <td>{button(each, name, [down, across + 1])}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function CellText({ cell }: { cell: Cell }) {
  const { worst, counts, changes } = cell;
  return (
    <>
      <span class="cell-main" aria-hidden="true">
        {worst ? (
          <>
            <i>{SIGN[worst]}</i>
            {counts[worst].toLocaleString("en")}
          </>
        ) : (
          <i>{SIGN.gone}</i>
        )}
      </span>
      {changes.worse + changes.better > 0 && (
        <span class="moved" aria-hidden="true">
          {changes.worse > 0 && <span class="worse">{`▼${changes.worse}`}</span>}
          {changes.better > 0 && <span class="better">{`▲${changes.better}`}</span>}
        </span>
      )}
    </>
  );
}
