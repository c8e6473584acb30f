// The events of a stream as a stack: the objects that each belongs to, and when each object was open.

import type { Exchange, Json, WireEvent } from "./data";

export interface Event {
  index: number;
  after: number; // ms
  type: string;
  data: string; // as received
  value: Json | undefined; // undefined if it is not valid JSON
  cut: boolean;
  rows: number[]; // of the stack, outermost first
  text: string; // the text that it adds
}

/** An object that is open for a while: a response, an item, a part; a choice, a call; a block. */
export interface Row {
  depth: number;
  label: string;
  kind: "whole" | "text" | "reasoning" | "call" | "other";
  events: number[]; // its own events, without those of its parts
  first: number; // ms
  last: number;
  text: string;
}

export interface Stack {
  events: Event[];
  rows: Row[];
  begin: number; // ms
  end: number;
}

type Fields = { [key: string]: Json };
interface Step {
  key: string;
  label: string;
  kind: Row["kind"];
}
interface Placed {
  path: Step[];
  text: string;
  type: string;
}

const LONGEST = 400; // characters of a row's text

const fields = (value: Json | undefined): Fields =>
  value && typeof value === "object" && !Array.isArray(value) ? value : {};
const list = (value: Json | undefined): Json[] => (Array.isArray(value) ? value : []);
const word = (value: Json | undefined): string => (typeof value === "string" ? value : "");

export function stackOf(exchange: Exchange): Stack {
  const rows: Row[] = [];
  const numbers = new Map<string, number>();
  const rowOf = (path: Step[], depth: number, after: number): number => {
    const key = path
      .slice(0, depth + 1)
      .map((step) => step.key)
      .join("/");
    let number = numbers.get(key);
    if (number === undefined) {
      const { label, kind } = path[depth]!;
      number = rows.push({ depth, label, kind, events: [], first: after, last: after, text: "" }) - 1;
      numbers.set(key, number);
    }
    return number;
  };
  const kinds = new Map<string, string>(); // types of items and blocks, by their numbers
  const events = (exchange.events ?? []).map((wire, index): Event => {
    const event = read(wire, index);
    const placed = placesOf(event, exchange.api, kinds);
    event.type = placed[0]?.type ?? event.type;
    for (const { path, text } of placed) {
      const own = path.map((_, depth) => rowOf(path, depth, event.after));
      for (const number of own) rows[number]!.last = Math.max(rows[number]!.last, event.after);
      const row = rows[own.at(-1)!]!;
      row.events.push(index);
      row.text = (row.text + text).slice(0, LONGEST);
      event.text += text;
      if (own.length > event.rows.length) event.rows = own;
    }
    return event;
  });
  const order = sorted(rows, numbers);
  const moved = new Map(order.map((from, to) => [from, to]));
  for (const event of events) event.rows = event.rows.map((row) => moved.get(row)!);
  return {
    events,
    rows: order.map((row) => rows[row]!),
    begin: 0,
    end: Math.max(events.at(-1)?.after ?? 0, (exchange.seconds ?? 0) * 1000, 1),
  };
}

/** The rows below their parents, in the order of their starts. */
function sorted(rows: Row[], numbers: Map<string, number>): number[] {
  const below = new Map<string, number[]>();
  for (const [key, number] of numbers) {
    const parent = key.includes("/") ? key.slice(0, key.lastIndexOf("/")) : "";
    below.set(parent, [...(below.get(parent) ?? []), number]);
  }
  const names = new Map([...numbers].map(([key, number]) => [number, key]));
  const walk = (parent: string): number[] =>
    (below.get(parent) ?? [])
      .sort((one, two) => rows[one]!.first - rows[two]!.first || one - two)
      .flatMap((number) => [number, ...walk(names.get(number)!)]);
  return walk("");
}

function read([after, name, data, cut]: WireEvent, index: number): Event {
  let value: Json | undefined;
  try {
    value = JSON.parse(data) as Json;
  } catch {
    value = undefined;
  }
  const type = word(fields(value).type) || name || (data.trim() === "[DONE]" ? "[DONE]" : "data");
  return { index, after, type, data, value, cut: cut ?? false, rows: [], text: "" };
}

function placesOf(event: Event, api: string | undefined, kinds: Map<string, string>): Placed[] {
  const value = fields(event.value);
  if (api === "chat" || Array.isArray(value.choices)) return ofChat(event, value);
  if (api === "messages" || /^(message|content_block)_|^ping$/.test(event.type)) return [ofMessages(event, value, kinds)];
  return [ofResponses(event, value, kinds)];
}

const kindOf = (type: string): Row["kind"] =>
  /reason|think/.test(type) ? "reasoning" : /call|tool|argument/.test(type) ? "call" : /message|text|content/.test(type) ? "text" : "other";

function ofResponses(event: Event, value: Fields, kinds: Map<string, string>): Placed {
  const path: Step[] = [{ key: "response", label: "response", kind: "whole" }];
  const number = value.output_index;
  if (typeof number === "number") {
    const type = word(fields(value.item).type);
    if (type) kinds.set(`${number}`, type);
    const item = kinds.get(`${number}`) ?? "item";
    path.push({ key: `${number}`, label: `${number} ${item}`, kind: kindOf(item) });
    const part = value.content_index ?? value.summary_index;
    if (typeof part === "number") {
      const of = event.type.replace(/^response\./, "").split(".")[0]!;
      const kind = kindOf(item);
      const name = typeof value.summary_index === "number" ? `summary ${part}` : `${kind === "reasoning" ? "reasoning text" : of.includes("refusal") ? "refusal" : "text"} ${part}`;
      path.push({ key: `${typeof value.summary_index === "number" ? "s" : "c"}${part}`, label: name, kind });
    } else if (/_arguments\.|_input\.|_code\./.test(event.type)) {
      path.push({ key: "arguments", label: "arguments", kind: "call" });
    }
  }
  return { path, text: word(value.delta), type: event.type };
}

function ofMessages(event: Event, value: Fields, kinds: Map<string, string>): Placed {
  const path: Step[] = [{ key: "message", label: "message", kind: "whole" }];
  const number = value.index;
  if (typeof number === "number") {
    const type = word(fields(value.content_block).type);
    if (type) kinds.set(`${number}`, type);
    const block = kinds.get(`${number}`) ?? "block";
    path.push({ key: `${number}`, label: `${number} ${block}`, kind: kindOf(block) });
  }
  const delta = fields(value.delta);
  return { path, text: word(delta.text) + word(delta.thinking) + word(delta.partial_json), type: event.type };
}

function ofChat(event: Event, value: Fields): Placed[] {
  const whole: Step = { key: "completion", label: "completion", kind: "whole" };
  const found = list(value.choices).flatMap((each) => ofChoice(fields(each), whole));
  if (found.length) return found;
  const type = event.type === "[DONE]" ? event.type : value.usage ? "usage" : value.error ? "error" : "chunk";
  return [{ path: [whole], text: "", type }];
}

function ofChoice(choice: Fields, whole: Step): Placed[] {
  const number = String(choice.index ?? 0);
  const path: Step[] = [whole, { key: number, label: `choice ${number}`, kind: "other" }];
  const found: Placed[] = [];
  for (const [name, added] of Object.entries(fields(choice.delta))) {
    if (name === "tool_calls") {
      for (const call of list(added).map(fields)) {
        const inner = fields(call.function);
        const label = `call ${String(call.index ?? "?")}${inner.name ? ` ${word(inner.name)}` : ""}`;
        const step: Step = { key: `call${String(call.index)}`, label, kind: "call" };
        found.push({ path: [...path, step], text: word(inner.arguments), type: "delta.tool_calls" });
      }
    } else if (typeof added === "string" && added && name !== "role") {
      const step: Step = { key: name, label: name, kind: kindOf(name) };
      found.push({ path: [...path, step], text: added, type: `delta.${name}` });
    }
  }
  if (typeof choice.finish_reason === "string")
    found.push({ path, text: "", type: `finish: ${choice.finish_reason}` });
  return found.length ? found : [{ path, text: "", type: fields(choice.delta).role ? "delta.role" : "chunk" }];
}
