// The cases of one or two runs, and the filter.

import type { Index, Outcome, RunIndex, Target } from "./data";

export type Change = "worse" | "better" | "other" | "new" | "gone" | "same";

export const OUTCOMES: Outcome[] = ["finding", "known", "passed", "skipped", "cancelled", "not_judged"];
export const CHANGES: Change[] = ["worse", "better", "other", "new", "gone", "same"];

export const WORD: Record<Outcome | Change, string> = {
  finding: "finding",
  known: "known defect",
  passed: "passed",
  skipped: "skipped",
  cancelled: "cancelled",
  not_judged: "not judged",
  worse: "worse",
  better: "better",
  other: "different",
  new: "new",
  gone: "gone",
  same: "same",
};

export interface Case {
  run: number;
  id: string;
  target: Target;
  group: string;
  title: string;
  outcome: Outcome;
  defects: string[];
  summary: string;
  seconds: number | null;
  attempts: number;
  codes: string[];
  covers: string[];
  place: [number, number] | null;
}

/** A case in this run, and in the run that it is compared with. */
export interface Entry {
  at: number; // its index among all
  key: string; // for the address
  shown: Case; // the case of this run, or of the earlier one if this run does not have it
  before: Case | null;
  row: string; // id of the target's row in the matrix
  change: Change | null; // null if there is one run
  absent: boolean; // only the earlier run has it
  text: string; // the text that is searched
}

export interface Filter {
  outcomes: Outcome[];
  changes: Change[];
  text: string;
  row: string;
  group: string;
  defect: string;
}

export const NO_FILTER: Filter = { outcomes: [], changes: [], text: "", row: "", group: "", defect: "" };

export function casesOf(run: RunIndex, number: number, outcomes: Outcome[]): Case[] {
  return run.cases.map((row) => ({
    run: number,
    id: row[0],
    target: run.targets[row[1]]!,
    group: run.groups[row[2]]!,
    title: row[3],
    outcome: outcomes[row[4]]!,
    defects: row[5],
    summary: row[6].replace(/^AssertionError: /, ""),
    seconds: row[7],
    attempts: row[8],
    codes: row[9],
    covers: row[10],
    place: row[11],
  }));
}

const BAD: Outcome[] = ["finding", "known"];
const DID_NOT_RUN: Outcome[] = ["skipped", "cancelled", "not_judged"];

/** How a case changed, as `vllm-harness compare` judges it. */
export function changeOf(before: Case | null, now: Case | null): Change {
  if (!before) return "new";
  if (!now) return "gone";
  const [was, is] = [before.outcome, now.outcome];
  if (DID_NOT_RUN.includes(was)) return DID_NOT_RUN.includes(is) ? "same" : "new";
  if (DID_NOT_RUN.includes(is)) return "gone";
  if (!BAD.includes(is)) return BAD.includes(was) && is === "passed" ? "better" : "same";
  if (!BAD.includes(was) || (was === "known" && is === "finding")) return "worse";
  const signature = (each: Case) => [each.outcome, ...each.defects.slice().sort(), ...each.codes].join();
  return signature(before) === signature(now) ? "same" : "other";
}

export function entriesOf(index: Index): Entry[] {
  const [first, second] = index.runs.map((run, number) => casesOf(run, number, index.outcomes));
  const entries: Entry[] = [];
  const add = (shown: Case, before: Case | null, row: string, change: Change | null) =>
    entries.push({
      at: entries.length,
      key: `${shown.run}:${shown.target.id}:${shown.id}`,
      shown,
      before,
      row,
      change,
      absent: shown === before,
      text: searchText(shown),
    });
  if (!second) {
    for (const each of first!) add(each, null, each.target.id, null);
    return entries;
  }
  const key = (target: string, id: string) => `${target}\n${id}`;
  const left = new Map(first!.map((each) => [key(each.target.id, each.id), each]));
  for (const each of second) {
    const before = left.get(key(each.target.partner, each.id)) ?? null;
    if (before) left.delete(key(each.target.partner, each.id));
    add(each, before, each.target.id, changeOf(before, each));
  }
  const rows = new Map(index.runs[1]!.targets.map((target) => [target.partner, target.id]));
  for (const each of left.values()) add(each, each, rows.get(each.target.id) ?? `was:${each.target.id}`, "gone");
  return entries;
}

function searchText(each: Case): string {
  const { target } = each;
  return [
    each.id,
    each.title,
    each.group,
    target.id,
    target.title,
    target.vllm ?? "",
    target.frontend ?? "",
    WORD[each.outcome],
    each.summary,
    ...each.defects,
    ...each.codes,
    ...each.covers,
  ]
    .join("\n")
    .toLowerCase();
}

export function chosen(entries: Entry[], filter: Filter): Entry[] {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  const { outcomes, changes, row, group, defect } = filter;
  return entries.filter(
    (each) =>
      (!outcomes.length || outcomes.includes(each.shown.outcome)) &&
      (!changes.length || changes.includes(each.change!)) &&
      (!row || each.row === row) &&
      (!group || each.shown.group === group) &&
      (!defect || each.shown.defects.includes(defect)) &&
      words.every((word) => each.text.includes(word)),
  );
}

/** Failures first, then in the order in which they ran. */
export function inOrder(entries: Entry[]): Entry[] {
  const rank = (each: Entry) =>
    (each.change ? CHANGES.indexOf(each.change) * 10 : 0) + OUTCOMES.indexOf(each.shown.outcome);
  return [...entries].sort((one, two) => rank(one) - rank(two) || one.at - two.at);
}

export interface Cell {
  counts: Record<Outcome, number>;
  changes: Record<Change, number>;
  total: number;
  worst: Outcome | null;
  only: Entry | null; // the only case with the worst outcome
}

export function cellsOf(entries: Entry[]): Map<string, Cell> {
  const cells = new Map<string, Cell>();
  for (const each of entries) {
    for (const key of [cellKey(each.row, each.shown.group), cellKey(each.row, ALL)]) {
      let cell = cells.get(key);
      if (!cell) cells.set(key, (cell = emptyCell()));
      if (each.change) cell.changes[each.change]++;
      if (each.absent) continue;
      cell.counts[each.shown.outcome]++;
      cell.total++;
      const worst = cell.worst === null ? 99 : OUTCOMES.indexOf(cell.worst);
      const rank = OUTCOMES.indexOf(each.shown.outcome);
      if (rank < worst) [cell.worst, cell.only] = [each.shown.outcome, each];
      else if (rank === worst) cell.only = null;
    }
  }
  return cells;
}

/** Stands for all groups of a row. */
export const ALL = "\u0000";
export const cellKey = (row: string, group: string): string => `${row}\n${group}`;

const emptyCell = (): Cell => ({
  counts: { finding: 0, known: 0, passed: 0, skipped: 0, cancelled: 0, not_judged: 0 },
  changes: { worse: 0, better: 0, other: 0, new: 0, gone: 0, same: 0 },
  total: 0,
  worst: null,
  only: null,
});

/** The name of a case: its title, or its id without the file or group, which is shown beside it. */
export function nameOf(each: Case): string {
  if (each.title) return each.title;
  const [file, ...rest] = each.id.split("::");
  const stem = (name: string) => name.replace(/\.py$/, "");
  return rest.length && each.group && stem(file!).endsWith(stem(each.group)) ? rest.join("::") : each.id;
}

/** Names of groups without shared folders, `test_` and `.py`. */
export function shortNames(groups: string[]): Map<string, string> {
  const stems = groups.map((group) => group.replace(/\.py$/, ""));
  const folders = stems.map((stem) => stem.split("/").slice(0, -1));
  let shared = 0;
  while (folders.length && folders.every((each) => shared < each.length && each[shared] === folders[0]![shared])) shared++;
  return new Map(
    groups.map((group, at) => {
      const parts = stems[at]!.split("/").slice(shared);
      const last = parts.pop() ?? "";
      return [group, [...parts, last.replace(/^test_/, "")].join("/").replaceAll("_", " ") || "(none)"];
    }),
  );
}
