// The data of the page, which Python writes (contents.py), and its unpacking.

export type Outcome = "passed" | "known" | "finding" | "skipped" | "cancelled" | "not_judged";
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export interface Target {
  id: string;
  title: string;
  family?: string;
  lane?: string;
  vllm?: string;
  environment?: string;
  frontend?: string;
  device?: string;
  command?: string[];
  logs?: string[];
  startup_s?: number;
  partner: string;
  about: string; // what distinguishes it from the other targets
  whole: string; // version, front end and lane
}

export interface Series {
  target?: string;
  name: string;
  unit: string;
  form: "time" | "percentiles";
  points: [number, number][];
}

export interface Header {
  kind: string;
  name: string;
  command: string[];
  harness: string;
  machine: string;
  seed: number | null;
  started: number;
}

type Place = [block: number, at: number] | null;
type Row = [
  id: string,
  target: number,
  group: number,
  title: string,
  outcome: number,
  defects: string[],
  summary: string,
  seconds: number | null,
  attempts: number,
  codes: string[],
  covers: string[],
  place: Place,
];

export interface RunIndex {
  header: Header;
  end: { at: number; exit_code: number; stopped: string } | null;
  targets: Target[];
  groups: string[];
  series: Series[];
  cases: Row[];
}

export interface Defect {
  title: string;
  class: string;
  severity: string;
  component: string[];
  apis: string[];
  versions: string;
  reference: string;
  state: string;
  url: string;
  searched: string[];
  expected: string;
  source: string;
  actual: string;
  evidence: string;
  repro: boolean;
}

export interface Index {
  outcomes: Outcome[];
  runs: RunIndex[];
  defects: Record<string, Defect>;
}

export interface Finding {
  code?: string;
  severity?: "error" | "warning" | "info";
  message: string;
  exchange?: string;
  event_index?: number;
  path?: string;
  expected?: string;
  actual?: string;
  known?: string;
}

export type Piece = [ids: number[], text: string];
export type WireEvent = [after: number, name: string, data: string, cut?: boolean];

/** The prompt and output of a further generation within the request. */
export interface Generation {
  choice?: number;
  prompt?: { ids: number[]; text: string }[];
  output?: { ids: number[]; text: string }[];
}

export interface Exchange {
  id: string;
  api?: string;
  method: string;
  path?: string;
  at: number;
  headers?: Record<string, string>;
  request?: Json;
  status?: number;
  answer_headers?: Record<string, string>;
  answer?: Json;
  events?: WireEvent[];
  pieces?: [number, string][];
  seconds?: number;
  prompt?: Piece[];
  output?: Piece[];
  further?: Generation[];
  twin?: string;
  error?: string;
  accumulated?: Json;
  final?: Json;
}

export interface Detail {
  details?: string;
  reason?: string;
  findings?: Finding[];
  started?: number;
  node?: string;
  logs?: { source: string; lines: string[] }[];
  exchanges?: Exchange[];
  left_out?: string;
}

async function unpack<T>(name: string): Promise<T> {
  const packed = document.getElementById(name)?.textContent;
  if (!packed) throw new Error(`this page has no data named ${name}`);
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return (await new Response(stream).json()) as T;
}

export async function readIndex(): Promise<Index> {
  const index = await unpack<Index>("index");
  const now = index.runs.at(-1)!.targets;
  const parts = (target: Target) => [target.vllm, target.frontend, target.lane].map((each) => each ?? "");
  const differs = [0, 1, 2].map((at) => new Set(now.map((target) => parts(target)[at])).size > 1);
  for (const target of index.runs.flatMap((run) => run.targets)) {
    target.whole = parts(target).filter(Boolean).join(" · ");
    target.about = parts(target)
      .filter((each, at) => each && differs[at])
      .join(" · ");
  }
  return index;
}

const KEPT = 8; // blocks
const blocks = new Map<number, Promise<Detail[]>>();

export async function readDetail(place: Place): Promise<Detail> {
  if (!place) return {};
  const [number, at] = place;
  const block = blocks.get(number) ?? unpack<Detail[]>(`block-${number}`);
  blocks.delete(number);
  blocks.set(number, block);
  if (blocks.size > KEPT) blocks.delete(blocks.keys().next().value as number);
  return (await block)[at] ?? {};
}
