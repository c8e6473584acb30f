// The page: the run, the matrix, and the cases that match the filter; or one case.

import { render } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { CHANGES, NO_FILTER, OUTCOMES, WORD, chosen, entriesOf, inOrder, shortNames, type Cell, type Change, type Entry, type Filter } from "./cases";
import { CaseView, DefectView } from "./case";
import { Charts, chartsOf } from "./charts";
import { shell } from "./copies";
import { readIndex, type Index, type Outcome } from "./data";
import { useAddress, without, type Address, type View } from "./hooks";
import { List } from "./list";
import { Matrix, rowsOf, type RowOf } from "./matrix";
import { Copy, Fact, SIGN, many, seconds, when } from "./parts";

type Theme = "" | "light" | "dark";

function useTheme(): [Theme, (theme: Theme) => void, boolean] {
  const kept = (): Theme => {
    try {
      const found = localStorage.getItem("vllm-harness-theme");
      return found === "light" || found === "dark" ? found : "";
    } catch {
      return ""; // a page opened from disk may have no storage
    }
  };
  const [theme, set] = useState<Theme>(kept);
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = theme ? theme === "dark" : system.matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  const [, again] = useState(0);
  useEffect(() => {
    const changed = () => again((n) => n + 1);
    system.addEventListener("change", changed);
    return () => system.removeEventListener("change", changed);
  }, []);
  const change = (next: Theme): void => {
    try {
      localStorage.setItem("vllm-harness-theme", next);
    } catch {
      // the choice then lasts for this visit only
    }
    set(next);
  };
  return [theme, change, dark];
}

function App({ index }: { index: Index }) {
  const entries = useMemo(() => inOrder(entriesOf(index)), [index]);
  const [address, go] = useAddress();
  const [theme, setTheme, dark] = useTheme();
  const { filter } = address;
  const inMatrix = useMemo(() => chosen(entries, without(filter, "row", "group")), [entries, filter]);
  const left = useMemo(() => (filter.row || filter.group ? chosen(inMatrix, filter) : inMatrix), [inMatrix, filter]);
  const open = useMemo(() => (address.open ? entries.find((each) => each.key === address.open) : undefined), [address.open, entries]);
  const at = open ? left.indexOf(open) : -1;
  const [last, setLast] = useState("");
  const scrolled = useRef(0);
  const search = useRef<HTMLInputElement>(null);
  const openCase = (entry: Entry): void => {
    if (!address.open) scrolled.current = scrollY;
    setLast(entry.key);
    go({ open: entry.key });
  };
  const closeCase = (): void => go({ open: "" });
  const step = (by: number): void => {
    const next = left[at + by];
    if (open && next) openCase(next);
  };
  useLayoutEffect(() => {
    if (!open) scrollTo(0, scrolled.current);
  }, [open]);
  useEffect(() => {
    const pressed = (event: KeyboardEvent): void => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const typing = event.target instanceof HTMLInputElement && event.target.type !== "checkbox";
      if (event.key === "Escape") {
        if (open) closeCase();
        else if (typing) (go({ filter: without(filter, "text") }), (event.target as HTMLElement).blur());
        else go({ filter: NO_FILTER });
      } else if (typing) return;
      else if (event.key === "/" && !open) (event.preventDefault(), search.current?.focus());
      else if (event.key === "j") step(1);
      else if (event.key === "k") step(-1);
      else return;
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  });
  const run = index.runs.at(-1)!;
  useEffect(() => {
    document.title = open ? `${open.shown.title || open.shown.id} · vLLM harness` : `${run.header.name || run.header.kind} · vLLM harness report`;
  }, [open]);
  const onCell = (row: string, group: string, cell: Cell | undefined): void => {
    if (filter.row === row && filter.group === group) return go({ filter: without(filter, "row", "group") });
    if (group && cell?.worst === "finding" && cell.only) return openCase(cell.only);
    go({ filter: { ...filter, row, group }, view: "cases" });
  };
  return (
    <>
      <Top index={index} theme={theme} setTheme={setTheme} />
      <main>
        <div hidden={Boolean(open)}>
          <Overview index={index} entries={entries} inMatrix={inMatrix} left={left} address={address} go={go} search={search} onCell={onCell} onOpen={openCase} last={last} hidden={Boolean(open)} dark={dark} />
        </div>
        {open && <CaseView index={index} entry={open} place={[at, left.length]} onStep={step} onClose={closeCase} />}
        {address.open && !open && (
          <p class="nothing">
            This page has no case with this address. <a href="#">All cases</a>
          </p>
        )}
      </main>
      <footer>
        <p>
          <kbd>/</kbd> search <kbd>←↑→↓</kbd> move <kbd>Enter</kbd> open <kbd>j</kbd> <kbd>k</kbd> next, previous case <kbd>Esc</kbd> back, or clear the filter
        </p>
      </footer>
    </>
  );
}

function Top({ index, theme, setTheme }: { index: Index; theme: Theme; setTheme: (theme: Theme) => void }) {
  const [now, before] = [index.runs.at(-1)!, index.runs.length > 1 ? index.runs[0] : undefined];
  const next: Record<Theme, Theme> = { "": "dark", dark: "light", light: "" };
  const all = (run: typeof now, field: "vllm" | "frontend" | "lane") => [...new Set(run.targets.map((each) => each[field]).filter(Boolean))].join(", ");
  const title = now.header.name || now.header.kind;
  return (
    <header class="top">
      <div class="top-line">
        <h1>
          <bdi>{before && before.header.name !== now.header.name ? `${before.header.name || before.header.kind} → ${title}` : title}</bdi>
          <span class="kind">{before ? `${now.header.kind} compared` : now.header.kind}</span>
        </h1>
        <button type="button" class="theme" onClick={() => setTheme(next[theme])} aria-label={`Colours: ${theme || "as in the system settings"}`}>
          {theme === "dark" ? "☾ dark" : theme === "light" ? "☀ light" : "◐ auto"}
        </button>
      </div>
      {(before ? [before, now] : [now]).map((run) => (
        <p class="top-about">
          {before && <b>{run === now ? "now" : "before"}</b>}
          {all(run, "vllm") && <span>{`vLLM ${all(run, "vllm")}`}</span>}
          {all(run, "frontend") && <span>{`${all(run, "frontend")} front end`}</span>}
          {all(run, "lane") && <span>{`${all(run, "lane")} lane`}</span>}
          <span>{when(run.header.started)}</span>
          <span>{run.end ? seconds(run.end.at - run.header.started) : "not finished"}</span>
          {run.end?.stopped && <span class="stopped">{`stopped: ${run.end.stopped}`}</span>}
          <span>{many(run.cases.length, "case")}</span>
          <span>{many(run.targets.length, "target")}</span>
        </p>
      ))}
    </header>
  );
}

interface OverviewProps {
  index: Index;
  entries: Entry[];
  inMatrix: Entry[];
  left: Entry[];
  address: Address;
  go: (change: Partial<Address>) => void;
  search: { current: HTMLInputElement | null };
  onCell: (row: string, group: string, cell: Cell | undefined) => void;
  onOpen: (entry: Entry) => void;
  last: string;
  hidden: boolean;
  dark: boolean;
}

function Overview({ index, entries, inMatrix, left, address, go, search, onCell, onOpen, last, hidden, dark }: OverviewProps) {
  const { filter, view } = address;
  const set = (change: Partial<Filter>) => go({ filter: { ...filter, ...change } });
  const charts = useMemo(() => chartsOf(index).length, [index]);
  const defects = useMemo(() => countDefects(left), [left]);
  const rows = useMemo(() => rowsOf(index), [index]);
  const several = rows.length > 1;
  const groups = useMemo(() => shortNames(index.runs.flatMap((run) => run.groups)), [index]);
  const views: [View, string, number | null][] = [
    ["cases", "Cases", left.length],
    ["defects", "Known defects", defects.length],
    ["charts", "Charts", charts],
    ["run", index.runs.length > 1 ? "Runs" : "Run", null],
  ];
  const hasCases = entries.length > 0;
  const shown = !hasCases && view === "cases" ? (charts ? "charts" : "run") : view;
  return (
    <>
      {hasCases && (
        <>
          <div class="filter" role="search">
            <div class="chips">
              <Chips name="outcomes" of={OUTCOMES} entries={entries} filter={filter} kind={outcomeOf} set={set} />
              {index.runs.length > 1 && <Chips name="changes" of={CHANGES} entries={entries} filter={filter} kind={changeOf} set={set} />}
            </div>
            <label class="search">
              <span class="unseen">Search cases</span>
              <input ref={search} type="search" placeholder="Search: case, target, defect, rule, message" value={filter.text} onInput={(event) => set({ text: event.currentTarget.value })} spellcheck={false} />
              <kbd aria-hidden="true">/</kbd>
            </label>
          </div>
          <section class="card" aria-label="Matrix">
            <Matrix index={index} entries={inMatrix} row={filter.row} group={filter.group} onCell={onCell} />
          </section>
        </>
      )}
      <div class="views" role="group" aria-label="Views">
        {views
          .filter(([name, , count]) => count !== 0 || name === "cases")
          .filter(([name]) => hasCases || (name !== "cases" && name !== "defects"))
          .map(([name, label, count]) => (
            <button type="button" aria-pressed={shown === name} onClick={() => go({ view: name })}>
              {label} {count !== null && <span class="count">{count.toLocaleString("en")}</span>}
            </button>
          ))}
        <Picked filter={filter} set={set} rows={rows} groups={groups} />
      </div>
      {shown === "cases" && (
        <section class="card" aria-label="Cases">
          {left.length ? <List entries={left} address={address} several={several} groups={groups} last={last} hidden={hidden} onOpen={onOpen} /> : <p class="nothing">No case matches the filter.</p>}
        </section>
      )}
      {shown === "defects" && <Defects index={index} defects={defects} onPick={(defect) => go({ filter: { ...filter, defect }, view: "cases" })} />}
      {shown === "charts" && <Charts index={index} dark={dark} />}
      {shown === "run" && <Runs index={index} />}
      <p class="unseen" aria-live="polite">
        {many(left.length, "case")}
      </p>
    </>
  );
}

const outcomeOf = (entry: Entry): Outcome | null => (entry.absent ? null : entry.shown.outcome);
const changeOf = (entry: Entry): Change | null => entry.change;

interface ChipsProps<T extends Outcome | Change> {
  name: "outcomes" | "changes";
  of: T[];
  entries: Entry[];
  filter: Filter;
  kind: (entry: Entry) => T | null;
  set: (change: Partial<Filter>) => void;
}

/** A button for each outcome or change, with the number of cases that it matches within the rest of the filter. */
function Chips<T extends Outcome | Change>({ name, of, entries, filter, kind, set }: ChipsProps<T>) {
  const picked = filter[name] as T[];
  const counts = useMemo(() => {
    const found = new Map<T, number>();
    for (const each of chosen(entries, without(filter, name))) {
      const one = kind(each);
      if (one) found.set(one, (found.get(one) ?? 0) + 1);
    }
    return found;
  }, [entries, filter]);
  const toggle = (each: T) => set({ [name]: picked.includes(each) ? picked.filter((one) => one !== each) : [...picked, each] });
  return (
    <div class="chip-group" role="group" aria-label={name}>
      {of
        .filter((each) => counts.get(each) || picked.includes(each))
        .map((each) => (
          <button type="button" class={`chip ${each}`} aria-pressed={picked.includes(each)} onClick={() => toggle(each)}>
            <i aria-hidden="true">{SIGN[each]}</i>
            <b>{(counts.get(each) ?? 0).toLocaleString("en")}</b> {WORD[each]}
          </button>
        ))}
    </div>
  );
}

/** The parts of the filter other than outcomes and text, each with a button that removes it. */
function Picked({ filter, set, rows, groups }: { filter: Filter; set: (change: Partial<Filter>) => void; rows: RowOf[]; groups: Map<string, string> }) {
  const row = rows.find((each) => each.id === filter.row);
  const shown: [keyof Filter, string][] = [
    ["row", row ? [row.target.title, row.target.about].filter(Boolean).join(" · ") : filter.row],
    ["group", groups.get(filter.group) ?? filter.group],
    ["defect", filter.defect],
  ];
  return (
    <span class="picked">
      {shown
        .filter(([name]) => filter[name])
        .map(([name, text]) => (
          <button type="button" onClick={() => set({ [name]: "" })} aria-label={`Remove ${text} from the filter`}>
            {text} ✕
          </button>
        ))}
    </span>
  );
}

function countDefects(entries: Entry[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const each of entries) if (!each.absent) for (const defect of each.shown.defects) counts.set(defect, (counts.get(defect) ?? 0) + 1);
  return [...counts].sort((one, two) => two[1] - one[1] || (one[0] < two[0] ? -1 : 1));
}

const Defects = ({ index, defects, onPick }: { index: Index; defects: [string, number][]; onPick: (id: string) => void }) => (
  <div class="defects">
    {defects.map(([id, count]) => (
      <div class="card defect-card">
        <DefectView id={id} defect={index.defects[id]} heading="h2" />
        <button type="button" onClick={() => onPick(id)}>{`Show ${many(count, "case")}`}</button>
      </div>
    ))}
  </div>
);

const Runs = ({ index }: { index: Index }) => (
  <>
    {index.runs.map((run, number) => (
      <section class="card run">
        <h2>{index.runs.length > 1 ? (number ? "Now" : "Before") : "Run"}</h2>
        <dl class="facts">
          <Fact name="name">{run.header.name}</Fact>
          <Fact name="kind">{run.header.kind}</Fact>
          <Fact name="started">{when(run.header.started)}</Fact>
          <Fact name="duration">{run.end ? `${seconds(run.end.at - run.header.started)}, exit code ${run.end.exit_code}` : "not finished"}</Fact>
          <Fact name="stopped">{run.end?.stopped}</Fact>
          <Fact name="harness">{run.header.harness}</Fact>
          <Fact name="machine">{run.header.machine}</Fact>
          <Fact name="seed">{run.header.seed?.toString()}</Fact>
        </dl>
        {run.header.command.length > 0 && (
          <div class="buttons">
            <code>{shell(run.header.command)}</code>
            <Copy label="Copy" text={() => shell(run.header.command)} />
          </div>
        )}
        {run.targets.map((target) => (
          <details>
            <summary>
              <b>{target.title}</b> {target.whole}
            </summary>
            <dl class="facts">
              <Fact name="environment">{target.environment}</Fact>
              <Fact name="family">{target.family}</Fact>
              <Fact name="device">{target.device}</Fact>
              <Fact name="ready after">{target.startup_s === undefined ? "" : seconds(target.startup_s)}</Fact>
              <Fact name="command">{target.command && <code>{shell(target.command)}</code>}</Fact>
              <Fact name="log files">{target.logs?.join(", ")}</Fact>
            </dl>
          </details>
        ))}
      </section>
    ))}
  </>
);

const root = document.getElementById("app")!;
readIndex().then(
  (index) => {
    root.textContent = "";
    render(<App index={index} />, root);
  },
  (error: Error) => {
    root.textContent = `Cannot read this page: ${error.message}. A newer browser may help (Chrome 80, Firefox 113, Safari 16.4).`;
  },
);
