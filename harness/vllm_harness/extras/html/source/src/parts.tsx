// Small components that several views use.

import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { WORD, type Change } from "./cases";
import type { Json, Outcome } from "./data";
import { copy } from "./hooks";
import { linesOf } from "./json";

export const SIGN: Record<Outcome | Change, string> = {
  finding: "✕",
  known: "◆",
  passed: "✓",
  skipped: "–",
  cancelled: "◌",
  not_judged: "?",
  worse: "▼",
  better: "▲",
  other: "≠",
  new: "+",
  gone: "−",
  same: "=",
};

export const Sign = ({ of, bare }: { of: Outcome | Change; bare?: boolean }) => (
  <span class={`sign ${of}`}>
    <span aria-hidden="true">{SIGN[of]}</span>
    {bare ? null : <span class="sign-word">{WORD[of]}</span>}
  </span>
);

export const seconds = (value: number | null | undefined): string => {
  if (value == null) return "";
  if (value < 0.9995) return `${Math.round(value * 1000)} ms`;
  if (value < 59.95) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  const whole = Math.round(value);
  return whole < 3600 ? `${Math.floor(whole / 60)} min ${whole % 60} s` : `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
};

export const millis = (value: number): string => (value < 1000 ? `${value.toFixed(1)} ms` : `${(value / 1000).toFixed(3)} s`);

export const when = (epoch: number): string => new Date(epoch * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC";

export const many = (count: number, word: string): string => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

export function Copy({ label, text }: { label: string; text: () => string }) {
  const [said, say] = useState("");
  const clicked = async () => {
    say((await copy(text())) ? "Copied" : "Not copied");
    setTimeout(() => say(""), 1600);
  };
  return (
    <button type="button" class={`copy${said === "Copied" ? " done" : ""}`} onClick={clicked}>
      <span aria-live="polite">{said || label}</span>
    </button>
  );
}

/** JSON with wrapped strings; the places of findings are marked. */
export function JsonView({ value, marked = [], label }: { value: Json; marked?: string[]; label: string }) {
  const lines = useMemo(() => linesOf(value), [value]);
  return (
    <pre class="json" tabIndex={0} role="region" aria-label={label}>
      {lines.map((line) => (
        <div class={marked.includes(line.path) ? "line marked" : "line"} style={{ paddingLeft: `${line.depth * 1.25 + 0.75}rem` }}>
          {line.key && <span class="key">{line.key}</span>}
          <span class={line.kind}>{line.text}</span>
          {line.ends}
        </div>
      ))}
    </pre>
  );
}

export const Text = ({ children, label }: { children: ComponentChildren; label: string }) => (
  <pre class="prose" tabIndex={0} role="region" aria-label={label}>
    {children}
  </pre>
);

export const Fact = ({ name, children }: { name: string; children: ComponentChildren }) =>
  children ? (
    <div class="fact">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  ) : null;
