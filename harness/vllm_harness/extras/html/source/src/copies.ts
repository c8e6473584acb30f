// The texts to copy: a request as curl and as Python, a finding as a report to file upstream.

import type { Case } from "./cases";
import type { Defect, Exchange, Finding, Header, Json } from "./data";

const HOST = "http://127.0.0.1:8000";
const quoted = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);

const OWN = /^(host|content-length|accept-encoding|connection|user-agent|accept|content-type|x-stainless-.*)$/i;
const headersOf = (exchange: Exchange): [string, string][] =>
  Object.entries(exchange.headers ?? {}).filter(([name]) => !OWN.test(name));

export const shell = (words: string[]): string => words.map(quoted).join(" ");

export function curl(exchange: Exchange): string {
  const words = ["curl", "-sN"];
  if (exchange.method !== "POST") words.push("-X", exchange.method);
  words.push(HOST + (exchange.path ?? ""));
  for (const [name, value] of headersOf(exchange)) words.push("-H", `${name}: ${value}`);
  if (exchange.request != null) {
    words.push("-H", "Content-Type: application/json");
    words.push("-d", typeof exchange.request === "string" ? exchange.request : JSON.stringify(exchange.request));
  }
  return shell(words);
}

export function literal(value: Json, depth = 0): string {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const isList = Array.isArray(value);
  const inner = isList
    ? value.map((each) => literal(each, depth + 1))
    : Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${literal(each, depth + 1)}`);
  const [open, close] = isList ? ["[", "]"] : ["{", "}"];
  const line = open + inner.join(", ") + close;
  if (line.length + 4 * depth <= 96) return line;
  const indent = "    ".repeat(depth + 1);
  return `${open}\n${inner.map((each) => `${indent}${each},\n`).join("")}${"    ".repeat(depth)}${close}`;
}

export function python(exchange: Exchange): string {
  const url = JSON.stringify(HOST + (exchange.path ?? ""));
  const headers = Object.fromEntries(headersOf(exchange));
  const arguments_ = [JSON.stringify(exchange.method), url];
  if (Object.keys(headers).length) arguments_.push(`headers=${literal(headers)}`);
  if (exchange.request != null)
    arguments_.push(typeof exchange.request === "string" ? "content=BODY" : "json=BODY");
  const body = exchange.request != null ? `BODY = ${literal(exchange.request)}\n\n` : "";
  const call = `${arguments_.join(", ")}, timeout=60`;
  return exchange.events || exchange.pieces
    ? `import httpx\n\n${body}with httpx.stream(${call}) as answer:\n    print(answer.status_code)\n    for line in answer.iter_lines():\n        print(line)\n`
    : `import httpx\n\n${body}answer = httpx.request(${call})\nprint(answer.status_code)\nprint(answer.text)\n`;
}

const fenced = (text: string, language = ""): string => {
  const fence = "`".repeat(Math.max(3, ...[...text.matchAll(/`+/g)].map((run) => run[0].length + 1)));
  return `${fence}${language}\n${text}\n${fence}`;
};

const LONGEST = 6_000; // characters of a quoted text
const short = (text: string): string =>
  text.length <= LONGEST ? text : `${text.slice(0, LONGEST)}\n… (${text.length - LONGEST} more characters)`;

/** A report to file: the request, the model's output, the answer, and what was expected. */
export function report(
  each: Case,
  findings: Finding[],
  exchange: Exchange | undefined,
  defect: Defect | undefined,
  header: Header,
  failure: string,
): string {
  const { target } = each;
  const about = exchange ? findings.filter((finding) => !finding.exchange || finding.exchange === exchange.id) : findings;
  const title = defect?.title ?? about[0]?.message ?? each.summary;
  const parts = [`# ${title}`];
  const where = [target.environment || (target.vllm && `vLLM ${target.vllm}`), target.frontend && `${target.frontend} front end`, target.device];
  parts.push(`**Environment:** ${where.filter(Boolean).join(", ") || "unknown"}`);
  if (target.command?.length) parts.push(`**Server:**\n\n${fenced(shell(target.command), "console")}`);
  if (defect?.actual) parts.push(defect.actual);
  if (defect?.expected) parts.push(`**Expected:** ${defect.expected}${defect.source ? ` Source: ${defect.source}` : ""}`);
  for (const finding of about) {
    const at = finding.event_index === undefined ? "" : `event ${finding.event_index}, `;
    const code = finding.code ? `${finding.code} ` : "";
    parts.push(`## ${code}${finding.message}\n\nAt ${at}\`${finding.path || "$"}\``);
    if (finding.expected || finding.actual)
      parts.push(`| expected | actual |\n|---|---|\n| ${cell(finding.expected)} | ${cell(finding.actual)} |`);
    const event = finding.event_index === undefined ? undefined : exchange?.events?.[finding.event_index];
    if (event) parts.push(fenced(short(`${event[1] ? `event: ${event[1]}\n` : ""}data: ${event[2]}`)));
  }
  if (!about.length && failure) parts.push(`## Failure\n\n${fenced(short(failure))}`);
  if (exchange) {
    parts.push(`## Request\n\n${fenced(short(curl(exchange)), "console")}`);
    const said = (exchange.output ?? []).map(([, text]) => text).join("");
    if (said) parts.push(`## What the model generated\n\n${fenced(short(said))}`);
    const answer = exchange.events
      ? exchange.events.map(([, name, data]) => `${name ? `event: ${name}\n` : ""}data: ${data}`).join("\n\n")
      : typeof exchange.answer === "string"
        ? exchange.answer
        : JSON.stringify(exchange.answer ?? null, null, 1);
    parts.push(`## Answer (HTTP ${exchange.status ?? "none"})\n\n${fenced(short(answer))}`);
  }
  parts.push(`Found by vllm-harness ${header.harness}, case \`${each.id}\`.`);
  return `${parts.join("\n\n")}\n`;
}

const cell = (text: string | undefined): string => short(text ?? "").replaceAll("|", "\\|").replaceAll("\n", " ");
