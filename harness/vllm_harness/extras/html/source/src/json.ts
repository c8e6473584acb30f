// JSON as lines with their paths, so that the places of findings can be marked, and two values compared.

import type { Json } from "./data";

export interface Line {
  depth: number;
  key: string; // `"name": `, or empty
  text: string;
  kind: "string" | "number" | "word" | "mark";
  path: string; // $.output[0].id
  ends: string; // a comma, or nothing
}

export function linesOf(value: Json, most = 20_000): Line[] {
  const lines: Line[] = [];
  const put = (value: Json, depth: number, key: string, path: string, ends: string): void => {
    if (lines.length > most) return;
    if (value === null || typeof value !== "object") {
      const kind = typeof value === "string" ? "string" : typeof value === "number" ? "number" : "word";
      lines.push({ depth, key, text: JSON.stringify(value), kind, path, ends });
      return;
    }
    const isList = Array.isArray(value);
    const inner: [string, Json, string][] = isList
      ? value.map((each, at) => ["", each, `${path}[${at}]`])
      : Object.entries(value).map(([name, each]) => [`${JSON.stringify(name)}: `, each, `${path}.${name}`]);
    const [open, close] = isList ? ["[", "]"] : ["{", "}"];
    if (!inner.length) {
      lines.push({ depth, key, text: open + close, kind: "mark", path, ends });
      return;
    }
    lines.push({ depth, key, text: open, kind: "mark", path, ends: "" });
    inner.forEach(([name, each, at], place) => put(each, depth + 1, name, at, place < inner.length - 1 ? "," : ""));
    lines.push({ depth, key: "", text: close, kind: "mark", path, ends });
  };
  put(value, 0, "", "$", "");
  if (lines.length > most) lines.push({ depth: 0, key: "", text: "… truncated", kind: "mark", path: "", ends: "" });
  return lines;
}

export const plain = (line: Line): string => `${"  ".repeat(line.depth)}${line.key}${line.text}${line.ends}`;

const VOLATILE = /^(id|item_id|call_id|response_id|created|created_at|completed_at|system_fingerprint|sequence_number|obfuscation)$/;

/** The value with sorted keys, and without ids and times, which differ from answer to answer. */
export function comparable(value: Json, withIds: boolean): Json {
  if (Array.isArray(value)) return value.map((each) => comparable(each, withIds));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([name]) => withIds || !VOLATILE.test(name))
      .sort(([one], [two]) => (one < two ? -1 : 1))
      .map(([name, each]) => [name, comparable(each, withIds)]),
  );
}
