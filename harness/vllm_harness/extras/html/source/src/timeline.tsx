// The event stack over time, the list of its events, and the chosen event; all with their findings.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Exchange, Finding } from "./data";
import { stackOf, type Event, type Row, type Stack } from "./events";
import { useVirtual } from "./hooks";
import { JsonView, Text, many, millis } from "./parts";

const LINE = 26; // pixels
const ROWS = 60; // rows of the stack that are drawn

export function Timeline({ exchange, findings, wanted }: { exchange: Exchange; findings: Finding[]; wanted: number | null }) {
  const stack = useMemo(() => stackOf(exchange), [exchange]);
  const at = useMemo(() => {
    const found = new Map<number, Finding[]>();
    for (const each of findings)
      if (each.event_index !== undefined) found.set(each.event_index, [...(found.get(each.event_index) ?? []), each]);
    return found;
  }, [findings]);
  const first = wanted ?? [...at.keys()][0] ?? 0;
  const [chosen, choose] = useState(first);
  useEffect(() => choose(first), [exchange, first]);
  const event = stack.events[chosen];
  return (
    <div class="timeline">
      <Tracks stack={stack} at={at} chosen={chosen} choose={choose} />
      <div class="events-and-one">
        <Events stack={stack} at={at} chosen={chosen} choose={choose} />
        {event && <One event={event} findings={at.get(chosen) ?? []} />}
      </div>
    </div>
  );
}

interface Shared {
  stack: Stack;
  at: Map<number, Finding[]>;
  chosen: number;
  choose: (index: number) => void;
}

const severityOf = (findings: Finding[]): string =>
  findings.every((each) => each.known) ? "known" : "finding";

function Tracks({ stack, at, chosen, choose }: Shared) {
  const { events, rows, end } = stack;
  const percent = (ms: number): number => (ms / end) * 100;
  const marks = [0, 0.25, 0.5, 0.75, 1].map((part) => part * end);
  const now = events[chosen];
  return (
    <div class="tracks" role="group" aria-label="Event stack over time">
      <div class="scale" aria-hidden="true">
        <span />
        <div>
          {marks.map((ms, place) => (
            <span class={place === 4 ? "end" : ""} style={{ left: `${percent(ms)}%` }}>
              {millis(ms)}
            </span>
          ))}
        </div>
      </div>
      {rows.slice(0, ROWS).map((row, number) => (
        <div class={`track ${row.kind}`} key={number}>
          <span class="track-name" style={{ paddingLeft: `${row.depth * 0.9}rem` }} title={row.text || row.label}>
            {row.label}
          </span>
          <div class="track-time" onClick={(click) => choose(nearest(click, row, stack))}>
            <div class="bar" style={{ left: `${percent(row.first)}%`, width: `max(${percent(row.last - row.first)}%, 3px)` }} />
            <svg viewBox={`0 0 ${end} 10`} preserveAspectRatio="none" aria-hidden="true">
              <path d={row.events.map((index) => `M${events[index]!.after.toFixed(1)} 1V9`).join("")} />
            </svg>
            {now && now.rows.at(-1) === number && <div class="now" style={{ left: `${percent(now.after)}%` }} />}
            {[...at]
              .filter(([index]) => events[index]?.rows.at(-1) === number)
              .map(([index, found]) => (
                <button
                  type="button"
                  class={`flag ${severityOf(found)}`}
                  style={{ left: `${percent(events[index]!.after)}%` }}
                  aria-label={`Event ${index}: ${found.map((each) => `${each.code ?? ""} ${each.message}`).join("; ")}`}
                  title={found.map((each) => `${each.code ?? ""} ${each.message}`).join("\n")}
                  onClick={(click) => {
                    click.stopPropagation();
                    choose(index);
                  }}
                />
              ))}
          </div>
        </div>
      ))}
      {rows.length > ROWS && <p class="note">{many(rows.length - ROWS, "further row")} are only in the list of events.</p>}
    </div>
  );
}

function nearest(click: MouseEvent, row: Row, { events, end }: Stack): number {
  const box = (click.currentTarget as HTMLElement).getBoundingClientRect();
  const ms = ((click.clientX - box.left) / box.width) * end;
  const own = row.events.length ? row.events : events.map((each) => each.index);
  return own.reduce((best, index) => (Math.abs(events[index]!.after - ms) < Math.abs(events[best]!.after - ms) ? index : best), own[0]!);
}

type Item = { event: Event; finding?: Finding };

function Events({ stack, at, chosen, choose }: Shared) {
  const items = useMemo(
    () =>
      stack.events.flatMap((event): Item[] => [{ event }, ...(at.get(event.index) ?? []).map((finding) => ({ event, finding }))]),
    [stack, at],
  );
  const place = useMemo(() => items.findIndex((item) => item.event.index === chosen), [items, chosen]);
  const box = useRef<HTMLDivElement>(null);
  const { items: seen, size, show } = useVirtual(items.length, LINE, box, "own");
  useEffect(() => {
    // centred if out of sight
    const height = box.current?.clientHeight ?? 0;
    const top = place * LINE;
    const scrolled = box.current?.scrollTop ?? 0;
    if (top < scrolled || top + 2 * LINE > scrolled + height) show(place, "center");
  }, [place, items]);
  const moved = (event: KeyboardEvent): void => {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12, Home: -chosen, End: stack.events.length }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    choose(Math.max(0, Math.min(stack.events.length - 1, chosen + by)));
  };
  const id = (index: number) => `event-${index}`;
  return (
    <div
      class="events"
      ref={box}
      tabIndex={0}
      role="listbox"
      aria-label={`${many(stack.events.length, "event")}; the arrow keys move`}
      aria-activedescendant={seen.some(({ index }) => index === place) ? id(chosen) : undefined}
      onKeyDown={moved}
    >
      <div role="presentation" style={{ height: `${size}px` }}>
        {seen.map(({ index, start }) => {
          const { event, finding } = items[index]!;
          const style = { transform: `translateY(${start}px)` };
          if (finding)
            return (
              <div
                key={index}
                role="option"
                aria-selected={false}
                class={`event-finding ${severityOf([finding])}`}
                style={style}
                onClick={() => choose(event.index)}
              >
                {`${finding.known ? "◆" : "✕"} ${finding.code ?? ""} ${finding.message}`}
              </div>
            );
          return (
            <div
              key={index}
              id={id(event.index)}
              role="option"
              aria-selected={event.index === chosen}
              class={`event${event.index === chosen ? " chosen" : ""}${at.has(event.index) ? ` has-${severityOf(at.get(event.index)!)}` : ""}`}
              style={style}
              onClick={() => choose(event.index)}
            >
              <span class="event-number">{event.index}</span>
              <span class="event-time">{millis(event.after)}</span>
              <span class={`event-type ${stack.rows[event.rows.at(-1) ?? -1]?.kind ?? ""}`} style={{ paddingLeft: `${Math.max(0, event.rows.length - 1) * 0.8}rem` }}>
                {event.type.replace(/^response\./, "")}
              </span>
              <span class="event-text">{event.text ? JSON.stringify(event.text.slice(0, 200)).slice(1, -1) : ""}</span>
            </div>
          );
        })}
      </div>
    </div>
  );
}

function One({ event, findings }: { event: Event; findings: Finding[] }) {
  return (
    <div class="one-event">
      <h4>
        {`Event ${event.index}`} <span>{event.type}</span>
      </h4>
      {findings.map((each) => (
        <div class={`one-finding ${severityOf([each])}`}>
          <b>{each.code}</b> {each.message} {each.path && <code>{each.path}</code>}
          <Sides finding={each} />
        </div>
      ))}
      {event.cut && <p class="note">The stream ended before the blank line that closes this event.</p>}
      {event.value === undefined ? (
        <Text label={`Data of event ${event.index}`}>{event.data}</Text>
      ) : (
        <JsonView value={event.value} marked={findings.map((each) => each.path ?? "")} label={`Event ${event.index} as JSON`} />
      )}
    </div>
  );
}

export const Sides = ({ finding }: { finding: Finding }) =>
  finding.expected || finding.actual ? (
    <dl class="sides">
      <dt>expected</dt>
      <dd class="expected">{finding.expected || "nothing"}</dd>
      <dt>actual</dt>
      <dd class="actual">{finding.actual || "nothing"}</dd>
    </dl>
  ) : null;
