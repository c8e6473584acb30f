// Shared by the views: the address, the width, virtual lists, copying.

import {
  Virtualizer,
  elementScroll,
  observeElementOffset,
  observeElementRect,
  observeWindowOffset,
  observeWindowRect,
  windowScroll,
} from "@tanstack/virtual-core";
import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";
import { CHANGES, NO_FILTER, OUTCOMES, type Filter } from "./cases";

export type View = "cases" | "defects" | "charts" | "run";
const VIEWS: View[] = ["cases", "defects", "charts", "run"];

/** The whole state of the view is in the address, so that it can be linked. */
export interface Address {
  filter: Filter;
  view: View;
  open: string; // key of a case
}

export function readAddress(hash: string): Address {
  const found = new URLSearchParams(hash.replace(/^#/, ""));
  const several = <T extends string>(name: string, allowed: T[]): T[] =>
    allowed.filter((each) => (found.get(name) ?? "").split(",").includes(each));
  const one = (name: string): string => found.get(name) ?? "";
  return {
    filter: {
      outcomes: several("outcome", OUTCOMES),
      changes: several("change", CHANGES),
      text: one("q"),
      row: one("row"),
      group: one("group"),
      defect: one("defect"),
    },
    view: VIEWS.find((each) => each === one("view")) ?? "cases",
    open: one("case"),
  };
}

export function writeAddress({ filter, view, open }: Address): string {
  const { outcomes, changes, text, row, group, defect } = filter;
  const pairs = { q: text, outcome: outcomes.join(), change: changes.join(), row, group, defect, view: view === "cases" ? "" : view, case: open };
  return `#${new URLSearchParams(Object.entries(pairs).filter(([, value]) => value))}`;
}

export function useAddress(): [Address, (change: Partial<Address>) => void] {
  const [address, set] = useState(() => readAddress(location.hash));
  useEffect(() => {
    const changed = () => set(readAddress(location.hash));
    addEventListener("popstate", changed);
    addEventListener("hashchange", changed);
    return () => {
      removeEventListener("popstate", changed);
      removeEventListener("hashchange", changed);
    };
  }, []);
  const go = (change: Partial<Address>): void => {
    const next = { ...readAddress(location.hash), ...change };
    const step = next.open !== readAddress(location.hash).open || next.view !== readAddress(location.hash).view;
    history[step ? "pushState" : "replaceState"](null, "", writeAddress(next));
    set(next);
  };
  return [address, go];
}

export const without = (filter: Filter, ...names: (keyof Filter)[]): Filter => ({
  ...filter,
  ...Object.fromEntries(names.map((name) => [name, NO_FILTER[name]])),
});

export function useNarrow(below: number): boolean {
  const query = matchMedia(`(max-width: ${below - 1}px)`);
  const [narrow, set] = useState(query.matches);
  useEffect(() => {
    const changed = () => set(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, [below]);
  return narrow;
}

export interface Virtual {
  items: { index: number; start: number }[];
  size: number;
  show: (index: number, align?: "auto" | "center") => void;
}

/** The visible rows of a long list, which scrolls by itself or with the page (`scroller`). */
export function useVirtual(count: number, height: number, list: RefObject<HTMLElement | null>, scroller: "own" | "page"): Virtual {
  const [, again] = useReducer((n: number) => n + 1, 0);
  const margin = useRef(0);
  const made = useRef<Virtualizer<HTMLElement, Element> | Virtualizer<Window, Element> | null>(null);
  const shared = { count, estimateSize: () => height, overscan: 12, onChange: again };
  const ofPage = {
    ...shared,
    getScrollElement: () => window,
    observeElementRect: observeWindowRect,
    observeElementOffset: observeWindowOffset,
    scrollToFn: windowScroll,
    scrollMargin: margin.current,
    scrollPaddingStart: 160,
    scrollPaddingEnd: 40,
    initialOffset: () => window.scrollY,
  };
  const ofElement = {
    ...shared,
    getScrollElement: () => list.current,
    observeElementRect,
    observeElementOffset,
    scrollToFn: elementScroll,
  };
  if (scroller === "page") {
    if (!made.current) made.current = new Virtualizer<Window, Element>(ofPage);
    (made.current as Virtualizer<Window, Element>).setOptions(ofPage);
  } else {
    if (!made.current) made.current = new Virtualizer<HTMLElement, Element>(ofElement);
    (made.current as Virtualizer<HTMLElement, Element>).setOptions(ofElement);
  }
  const virtual = made.current!;
  useLayoutEffect(() => virtual._didMount(), []);
  useLayoutEffect(() => {
    if (scroller === "page" && list.current) {
      const top = list.current.getBoundingClientRect().top + window.scrollY;
      if (Math.abs(top - margin.current) > 1 && list.current.offsetParent) {
        margin.current = top;
        again(0);
      }
    }
    virtual._willUpdate();
  });
  useLayoutEffect(() => virtual.measure(), [height]);
  const offset = scroller === "page" ? margin.current : 0;
  return {
    items: virtual.getVirtualItems().map(({ index, start }) => ({ index, start: start - offset })),
    size: virtual.getTotalSize(),
    show: (index, align = "auto") => virtual.scrollToIndex(index, { align }),
  };
}

export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // a page opened from disk may have no clipboard
    const area = Object.assign(document.createElement("textarea"), { value: text });
    area.setAttribute("readonly", "");
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}
