// Two JSON values as lines side by side.

import { diffLines, diffWordsWithSpace, type ChangeObject } from "diff";
import type { Json } from "./data";
import { comparable, linesOf, plain } from "./json";

export interface Word {
  text: string;
  changed: boolean;
}
export interface Pair {
  left: Word[] | null;
  right: Word[] | null;
  same: boolean;
}
export type Part = { pairs: Pair[] } | { skipped: number; pairs: Pair[] };

const AROUND = 3; // equal lines around a difference
const LONGEST = 4_000; // characters of a line that is compared word by word

const text = (value: Json, withIds: boolean): string =>
  linesOf(comparable(value, withIds))
    .map((line) => plain({ ...line, ends: "" }))
    .join("\n") + "\n";

/** The lines of both values in pairs; null if the comparison takes too long. */
export function pairsOf(left: Json, right: Json, withIds: boolean): Pair[] | null {
  const changes = diffLines(text(left, withIds), text(right, withIds), { timeout: 1500 });
  if (!changes) return null;
  const pairs: Pair[] = [];
  for (let at = 0; at < changes.length; at++) {
    const change = changes[at]!;
    const next = changes[at + 1];
    if (!change.added && !change.removed) {
      pairs.push(...split(change).map((line) => ({ left: whole(line), right: whole(line), same: true })));
    } else if (change.removed && next?.added) {
      pairs.push(...beside(split(change), split(next)));
      at++;
    } else {
      pairs.push(...(change.removed ? beside(split(change), []) : beside([], split(change))));
    }
  }
  return pairs;
}

const split = (change: ChangeObject<string>): string[] => change.value.replace(/\n$/, "").split("\n");
const whole = (line: string, changed = false): Word[] => [{ text: line, changed }];

function beside(left: string[], right: string[]): Pair[] {
  return Array.from({ length: Math.max(left.length, right.length) }, (_, at) => {
    const [one, two] = [left[at], right[at]];
    if (one === undefined || two === undefined || one.length + two.length > LONGEST)
      return { left: one === undefined ? null : whole(one, true), right: two === undefined ? null : whole(two, true), same: false };
    const words = diffWordsWithSpace(one, two);
    const side = (hidden: "added" | "removed") =>
      words.filter((each) => !each[hidden]).map((each) => ({ text: each.value, changed: each.added || each.removed }));
    return { left: side("added"), right: side("removed"), same: false };
  });
}

/** The differences with a few lines around them; the other lines are folded. */
export function folded(pairs: Pair[]): Part[] {
  const near = new Set<number>();
  pairs.forEach((pair, at) => {
    if (!pair.same) for (let by = -AROUND; by <= AROUND; by++) near.add(at + by);
  });
  const parts: Part[] = [];
  let from = 0;
  while (from < pairs.length) {
    let to = from;
    while (to < pairs.length && near.has(to) === near.has(from)) to++;
    const those = pairs.slice(from, to);
    parts.push(near.has(from) || those.length < 3 ? { pairs: those } : { skipped: those.length, pairs: those });
    from = to;
  }
  return parts;
}
