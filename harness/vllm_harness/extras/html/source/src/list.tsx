// The cases that match the filter; only the visible ones are drawn.

import { useEffect, useRef } from "preact/hooks";
import { WORD, nameOf, type Entry } from "./cases";
import { useNarrow, useVirtual, writeAddress, type Address } from "./hooks";
import { Sign, seconds } from "./parts";

interface Props {
  entries: Entry[];
  address: Address;
  several: boolean; // targets
  groups: Map<string, string>; // short names by group
  last: string; // key of the case that was open
  hidden: boolean; // while a case is open
  onOpen: (entry: Entry) => void;
}

const TAGS = 2; // ids of defects that a line has room for

export function List({ entries, address, several, groups, last, hidden, onOpen }: Props) {
  const narrow = useNarrow(760);
  const list = useRef<HTMLUListElement>(null);
  const { items, size, show } = useVirtual(entries.length, narrow ? 74 : 46, list, "page");
  const wanted = useRef<number | null>(null);
  useEffect(() => {
    // after a case is closed, focus it in the list
    const at = hidden || !last ? -1 : entries.findIndex((entry) => entry.key === last);
    if (at < 0) return;
    wanted.current = at;
    show(at);
  }, [hidden]);
  useEffect(() => {
    if (wanted.current === null) return;
    const link = list.current?.querySelector<HTMLElement>(`[data-index="${wanted.current}"]`);
    if (link) {
      link.focus({ preventScroll: true });
      wanted.current = null;
    }
  });
  const moved = (event: KeyboardEvent): void => {
    const here = Number((event.target as HTMLElement).dataset.index ?? -1);
    const to = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: entries.length - 1, PageDown: here + 12, PageUp: here - 12 }[event.key];
    if (here < 0 || to === undefined) return;
    event.preventDefault();
    wanted.current = Math.max(0, Math.min(entries.length - 1, to));
    const there = list.current?.querySelector<HTMLElement>(`[data-index="${wanted.current}"]`);
    show(wanted.current);
    if (there) {
      there.focus({ preventScroll: true });
      wanted.current = null;
    }
  };
  return (
    <ul class={`cases${entries[0]?.change ? " compared" : ""}`} ref={list} style={{ height: `${size}px` }} onKeyDown={moved}>
      {items.map(({ index, start }) => {
        const entry = entries[index]!;
        const each = entry.shown;
        return (
          <li key={entry.key} aria-setsize={entries.length} aria-posinset={index + 1} style={{ transform: `translateY(${start}px)` }}>
            <a
              href={writeAddress({ ...address, open: entry.key })}
              class={`case ${each.outcome}${entry.key === last ? " last" : ""}`}
              data-index={index}
              onClick={(event) => {
                if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
                event.preventDefault();
                onOpen(entry);
              }}
            >
              <span class="case-sign">
                {entry.change && <Sign of={entry.change} />}
                {!entry.absent && <Sign of={each.outcome} />}
              </span>
              <span class="case-name">
                <bdi title={each.id}>{nameOf(each)}</bdi>
                <span class="case-target">{[several && each.target.title, several && each.target.about, groups.get(each.group)].filter(Boolean).join(" · ")}</span>
              </span>
              <span class="case-why">
                {each.outcome !== "known" && each.summary ? <span class="summary">{each.summary}</span> : null}
                {each.defects.slice(0, TAGS).map((defect) => (
                  <span class="tag">{defect}</span>
                ))}
                {each.defects.length > TAGS && <span class="tag">{`+${each.defects.length - TAGS}`}</span>}
                {entry.before && !entry.absent && entry.before.outcome !== each.outcome && (
                  <span class="was">was {WORD[entry.before.outcome]}</span>
                )}
              </span>
              <span class="case-time">
                {each.attempts > 1 && <span class="tries">{`${each.attempts} tries`}</span>}
                {seconds(each.seconds)}
              </span>
            </a>
          </li>
        );
      })}
    </ul>
  );
}
