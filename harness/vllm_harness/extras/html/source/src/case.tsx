// A case: its findings, what the model generated, what the client got, and what was expected.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { WORD, nameOf, type Case, type Entry } from "./cases";
import { curl, python, report, shell } from "./copies";
import { readDetail, type Defect, type Detail, type Exchange, type Finding, type Generation, type Index, type Piece } from "./data";
import { folded, pairsOf, type Pair, type Word } from "./diff";
import { Copy, Fact, JsonView, Sign, Text, many, seconds, when } from "./parts";
import { Sides, Timeline } from "./timeline";

interface Props {
  index: Index;
  entry: Entry;
  place: [at: number, of: number];
  onStep: (by: number) => void;
  onClose: () => void;
}

export function CaseView({ index, entry, place, onStep, onClose }: Props) {
  const two = entry.before && !entry.absent;
  const [side, setSide] = useState<"now" | "before">("now");
  useEffect(() => setSide("now"), [entry]);
  const each = side === "before" && entry.before ? entry.before : entry.shown;
  const [detail, setDetail] = useState<Detail | Error | null>(null);
  useEffect(() => {
    let current = true;
    setDetail(null);
    readDetail(each.place).then(
      (found) => current && setDetail(found),
      (error: Error) => current && setDetail(error),
    );
    return () => void (current = false);
  }, [each]);
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    scrollTo(0, 0);
    heading.current?.focus({ preventScroll: true });
  }, [entry]);
  const [at, of] = place;
  return (
    <article class="case-view" aria-label="Case">
      <nav class="case-nav" aria-label="Case">
        <button type="button" onClick={onClose}>
          ← All cases
        </button>
        <span class="grow" />
        {at >= 0 && <span class="place">{`${at + 1} of ${of}`}</span>}
        <button type="button" onClick={() => onStep(-1)} disabled={at <= 0} aria-label="Previous case">
          ↑ <kbd>k</kbd>
        </button>
        <button type="button" onClick={() => onStep(1)} disabled={at < 0 || at >= of - 1} aria-label="Next case">
          ↓ <kbd>j</kbd>
        </button>
      </nav>
      <header class={`case-head ${each.outcome}`}>
        <div class="case-signs">
          {entry.change && <Sign of={entry.change} />}
          <Sign of={each.outcome} />
          {each.attempts > 1 && <span class="tries">{`${each.attempts} tries`}</span>}
        </div>
        <h2 ref={heading} tabIndex={-1}>
          <bdi>{nameOf(each)}</bdi>
        </h2>
        <p class="case-about">
          <b>{each.target.title}</b>
          {[each.target.whole, each.group, seconds(each.seconds)].filter(Boolean).map((text) => (
            <span>{text}</span>
          ))}
        </p>
        {nameOf(each) !== each.id && <p class="case-id">{each.id}</p>}
        {each.covers.length > 0 && <p class="case-id">{`covers ${each.covers.join(", ")}`}</p>}
        {two && (
          <div class="switch" role="group" aria-label="Which run">
            {(["before", "now"] as const).map((which) => (
              <button type="button" aria-pressed={side === which} onClick={() => setSide(which)}>
                {which === "now" ? "Now" : "Before"}: {WORD[(which === "now" ? entry.shown : entry.before!).outcome]}
                <small>{(which === "now" ? entry.shown : entry.before!).target.whole}</small>
              </button>
            ))}
          </div>
        )}
      </header>
      {detail === null ? (
        <p class="loading">Opening the case…</p>
      ) : detail instanceof Error ? (
        <p class="nothing">{`Cannot read the case: ${detail.message}`}</p>
      ) : (
        <Inside key={`${each.run} ${entry.key}`} index={index} each={each} detail={detail} />
      )}
    </article>
  );
}

function Inside({ index, each, detail }: { index: Index; each: Case; detail: Detail }) {
  const findings = detail.findings ?? [];
  const exchanges = detail.exchanges ?? [];
  const first = exchanges.find((one) => findings.some((finding) => finding.exchange === one.id && !finding.known))
    ?? exchanges.find((one) => findings.some((finding) => finding.exchange === one.id))
    ?? exchanges[0];
  const [open, setOpen] = useState(first?.id ?? "");
  const [wanted, setWanted] = useState<number | null>(null);
  const stack = useRef<HTMLElement>(null);
  const exchange = exchanges.find((one) => one.id === open);
  const own = useMemo(() => findings.filter((finding) => (finding.exchange || exchanges[0]?.id) === open), [findings, open]);
  const jump = (finding: Finding): void => {
    setOpen(finding.exchange || exchanges[0]?.id || "");
    setWanted(finding.event_index ?? null);
    stack.current?.scrollIntoView({ block: "start" });
  };
  const reason = detail.reason || each.summary;
  const counting = findings.filter((finding) => !finding.known);
  const defects = [...new Set([...each.defects, ...findings.map((finding) => finding.known ?? "")])].filter(Boolean);
  const jumpTo = (finding: Finding) => (exchanges.length && finding.event_index !== undefined ? () => jump(finding) : null);
  const header = index.runs[each.run]!.header;
  return (
    <>
      {(counting.length > 0 || detail.details || each.outcome !== "passed") && (
        <Section title={each.outcome === "skipped" ? "Why it was skipped" : counting.length ? many(counting.length, "finding") : "What happened"}>
          <div class="buttons">
            {(each.outcome === "finding" || each.outcome === "known") && (
              <Copy
                label="Copy upstream report"
                text={() => report(each, findings, exchange, index.defects[defects[0] ?? ""], header, detail.details ?? reason)}
              />
            )}
          </div>
          {counting.map((finding) => (
            <FindingView finding={finding} onJump={jumpTo(finding)} />
          ))}
          {!counting.length && <p class="reason">{reason || (each.outcome === "known" ? `The only problem is ${defects.join(", ")}.` : WORD[each.outcome])}</p>}
          {detail.details && (
            <details open={!findings.length}>
              <summary>The whole failure</summary>
              <Text label="Failure">{detail.details}</Text>
            </details>
          )}
        </Section>
      )}
      {defects.map((id) => {
        const its = findings.filter((finding) => finding.known === id);
        return (
          <details class="known-defect" open={each.outcome === "known" && defects.length === 1}>
            <summary>
              <Sign of="known" /> <code>{id}</code> <span>{index.defects[id]?.title}</span> {its.length > 0 && <small>{many(its.length, "finding")}</small>}
            </summary>
            <DefectView id={id} defect={index.defects[id]} />
            {its.map((finding) => (
              <FindingView finding={finding} onJump={jumpTo(finding)} />
            ))}
          </details>
        );
      })}
      {detail.left_out && <p class="nothing">{detail.left_out}</p>}
      {exchanges.length > 1 && (
        <div class="exchanges" role="group" aria-label="Exchanges">
          {exchanges.map((one) => (
            <button type="button" aria-pressed={one.id === open} onClick={() => (setOpen(one.id), setWanted(null))}>
              {findings.some((finding) => finding.exchange === one.id) && <Sign of={findings.some((finding) => finding.exchange === one.id && !finding.known) ? "finding" : "known"} bare />}
              {` ${one.method} ${one.path ?? ""}`}
              <small>{[one.status ?? "no answer", one.events || one.pieces ? "stream" : "body", seconds(one.seconds)].filter(Boolean).join(" · ")}</small>
            </button>
          ))}
        </div>
      )}
      {exchange && <ExchangeView key={exchange.id} exchange={exchange} all={exchanges} findings={own} wanted={wanted} stack={stack} />}
      <Server each={each} detail={detail} />
    </>
  );
}

const Section = ({ title, children, at, about }: { title: string; children: ComponentChildren; at?: { current: HTMLElement | null }; about?: string }) => (
  <section class="part" ref={at} aria-label={title}>
    <h3>
      {title} {about && <small>{about}</small>}
    </h3>
    {children}
  </section>
);

const FindingView = ({ finding, onJump }: { finding: Finding; onJump: (() => void) | null }) => (
  <div class={`finding-card ${finding.known ? "known" : (finding.severity ?? "error")}`}>
    <p>
      {finding.code && <b class="code">{finding.code}</b>}
      <span class="severity">{finding.known ? `known: ${finding.known}` : (finding.severity ?? "error")}</span>
      <span class="message">{finding.message}</span>
      {finding.path && <code>{finding.path}</code>}
      {onJump && <button type="button" onClick={onJump}>{`Go to event ${finding.event_index}`}</button>}
    </p>
    <Sides finding={finding} />
  </div>
);

interface DefectProps {
  id: string;
  defect: Defect | undefined;
  heading?: "h2" | "h3";
}

export const DefectView = ({ id, defect, heading: Heading = "h3" }: DefectProps) => (
  <section class="part defect" aria-label={`Known defect ${id}`}>
    <Heading>
      <Sign of="known" /> {id}
    </Heading>
    {defect ? (
      <>
        <p class="defect-title">{defect.title}</p>
        <dl class="facts">
          <Fact name="versions">{defect.versions || "all"}</Fact>
          <Fact name="class">{[defect.class, defect.severity].filter(Boolean).join(", ")}</Fact>
          <Fact name="upstream">
            {defect.url ? (
              <a href={defect.url} target="_blank" rel="noreferrer noopener">
                {`${defect.reference} ↗`}
              </a>
            ) : (
              defect.reference || "not reported"
            )}
            {defect.state && ` (${defect.state})`}
          </Fact>
          <Fact name="where">{defect.component.map((each) => <code>{each}</code>)}</Fact>
          <Fact name="expected">{defect.expected}</Fact>
          <Fact name="actual">{defect.actual}</Fact>
          <Fact name="source">{defect.source}</Fact>
        </dl>
        {defect.evidence && (
          <details>
            <summary>Evidence</summary>
            <p>{defect.evidence}</p>
          </details>
        )}
        {defect.repro && (
          <div class="buttons">
            <code>{`vllm-harness repro ${id}`}</code>
            <Copy label="Copy" text={() => `vllm-harness repro ${id}`} />
          </div>
        )}
      </>
    ) : (
      <p>The registry had no entry with this id when this page was made.</p>
    )}
  </section>
);

interface ExchangeProps {
  exchange: Exchange;
  all: Exchange[];
  findings: Finding[];
  wanted: number | null;
  stack: { current: HTMLElement | null };
}

function ExchangeView({ exchange, all, findings, wanted, stack }: ExchangeProps) {
  const streamed = Boolean(exchange.events);
  // findings in a body have the paths of the final event of a stream
  const paths = findings.filter((each) => each.event_index === undefined).map((each) => (each.path ?? "").replace(/^\$\.response\b/, "$"));
  return (
    <>
      {exchange.error && <p class="nothing">{`No complete answer: ${exchange.error}`}</p>}
      {exchange.output && (
        <Section title="What the model generated" about={tokens(exchange.output)}>
          <Tokens pieces={exchange.output} label="Tokens of the model's output" />
        </Section>
      )}
      {exchange.further?.map((each, at) => (
        <Section title={`Generation ${at + 2}`} about={[`choice ${each.choice ?? 0}`, tokens(piecesOf(each.output))].join(", ")}>
          <Tokens pieces={piecesOf(each.output)} label={`Tokens of generation ${at + 2}`} />
          {each.prompt && (
            <details>
              <summary>{`Its prompt (${tokens(piecesOf(each.prompt))})`}</summary>
              <Tokens pieces={piecesOf(each.prompt)} label={`Tokens of the prompt of generation ${at + 2}`} />
            </details>
          )}
        </Section>
      ))}
      {streamed && (
        <Section title="Event stack" about={many(exchange.events!.length, "event")} at={stack}>
          <Timeline exchange={exchange} findings={findings} wanted={wanted} />
        </Section>
      )}
      {exchange.pieces && (
        <Section title="Received bytes" about={many(exchange.pieces.length, "piece")}>
          <Text label="Received bytes">{exchange.pieces.map(([, text]) => text).join("")}</Text>
        </Section>
      )}
      {exchange.answer != null && (
        <Section title="Answer" about={`HTTP ${exchange.status}`}>
          {typeof exchange.answer === "string" ? (
            <Text label="Answer">{exchange.answer}</Text>
          ) : (
            <JsonView value={exchange.answer} marked={paths} label="Answer as JSON" />
          )}
        </Section>
      )}
      <Compared exchange={exchange} all={all} />
      <Section title="Request" about={`${exchange.method} ${exchange.path ?? ""}`}>
        <div class="buttons">
          <Copy label="Copy curl" text={() => curl(exchange)} />
          <Copy label="Copy Python" text={() => python(exchange)} />
        </div>
        {exchange.request != null && (typeof exchange.request === "string" ? <Text label="Request">{exchange.request}</Text> : <JsonView value={exchange.request} label="Request as JSON" />)}
        <Headers title="Headers" headers={exchange.headers} />
        <Headers title="Headers of the answer" headers={exchange.answer_headers} />
      </Section>
      {exchange.prompt && (
        <Section title="Prompt" about={tokens(exchange.prompt)}>
          <Tokens pieces={exchange.prompt} label="Tokens of the prompt" />
        </Section>
      )}
    </>
  );
}

const tokens = (pieces: Piece[]): string => many(pieces.reduce((sum, [ids]) => sum + ids.length, 0), "token");

const piecesOf = (pieces: Generation["output"]): Piece[] => (pieces ?? []).map(({ ids, text }) => [ids, text]);

const Headers = ({ title, headers }: { title: string; headers: Record<string, string> | undefined }) =>
  headers ? (
    <details>
      <summary>{title}</summary>
      <Text label={title}>
        {Object.entries(headers)
          .map(([name, value]) => `${name}: ${value}`)
          .join("\n")}
      </Text>
    </details>
  ) : null;

const DRAWN = 6_000; // tokens

/** Tokens in a row, with visible borders and line ends. */
function Tokens({ pieces, label }: { pieces: Piece[]; label: string }) {
  return (
    <pre class="tokens" tabIndex={0} role="region" aria-label={label}>
      {pieces.slice(0, DRAWN).map(([ids, text], at) => (
        <span class={at % 2 ? "token odd" : "token"} title={`${ids.length > 1 ? "tokens" : "token"} ${ids.join(", ")}`}>
          {text.split("\n").map((line, place) => (
            <>
              {place > 0 && <span class="line-end">{"↵\n"}</span>}
              {line}
            </>
          ))}
        </span>
      ))}
      {pieces.length > DRAWN && <span class="line-end">{` … ${pieces.length - DRAWN} more`}</span>}
    </pre>
  );
}

interface Choice {
  name: string;
  left: [string, Exchange["answer"]];
  right: [string, Exchange["answer"]];
}

function Compared({ exchange, all }: { exchange: Exchange; all: Exchange[] }) {
  const choices = useMemo(() => {
    const found: Choice[] = [];
    const { accumulated, final } = exchange;
    const twin = all.find((each) => each.id === exchange.twin);
    if (accumulated != null && final != null)
      found.push({ name: "Stream and its final object", left: ["the sum of its events", accumulated], right: ["its final object", final] });
    const own = final ?? accumulated ?? exchange.answer;
    const other = twin && (twin.final ?? twin.accumulated ?? twin.answer);
    if (own != null && other != null) {
      const streamed: [string, Exchange["answer"]] = ["streamed", exchange.events ? own : other];
      found.push({ name: "Streamed and not streamed", left: streamed, right: ["not streamed", exchange.events ? other : own] });
    }
    return found;
  }, [exchange, all]);
  const [picked, pick] = useState<number | null>(null);
  const [withIds, setWithIds] = useState(false);
  const compared = useMemo(() => choices.map((each) => pairsOf(each.left[1]!, each.right[1]!, withIds)), [choices, withIds]);
  const at = picked ?? Math.max(0, compared.findIndex((pairs) => !pairs || pairs.some((pair) => !pair.same))); // the first one with a difference
  const [choice, pairs] = [choices[at], compared[at]];
  if (!choice || pairs === undefined) return null;
  const different = pairs?.filter((pair) => !pair.same).length ?? 0;
  return (
    <Section title={choices.length > 1 ? "Compared" : choice.name} about={pairs === null ? "too different for a comparison by lines" : different ? `${many(different, "line")} ${different === 1 ? "differs" : "differ"}` : "no difference"}>
      <div class="buttons">
        {choices.length > 1 && choices.map((each, number) => (
          <button type="button" aria-pressed={number === at} onClick={() => pick(number)}>
            {each.name}
          </button>
        ))}
        <label>
          <input type="checkbox" checked={withIds} onChange={(event) => setWithIds(event.currentTarget.checked)} /> with ids and times
        </label>
      </div>
      {pairs ? <DiffView pairs={pairs} left={choice.left[0]} right={choice.right[0]} /> : null}
    </Section>
  );
}

function DiffView({ pairs, left, right }: { pairs: Pair[]; left: string; right: string }) {
  const parts = useMemo(() => folded(pairs), [pairs]);
  const [opened, open] = useState<number[]>([]);
  const line = (words: Word[] | null, side: string, same: boolean) => (
    <div class={`diff-line ${words === null ? "none" : same ? "" : side}`}>
      {words?.map((each) => (each.changed ? <mark>{each.text}</mark> : each.text))}
    </div>
  );
  if (pairs.every((pair) => pair.same)) return <p class="same-note">{`✓ No difference in ${many(pairs.length, "line")}.`}</p>;
  return (
    <div class="diff" tabIndex={0} role="region" aria-label={`${left} beside ${right}`}>
      <div class="diff-pair diff-head">
        <div>{left}</div>
        <div>{right}</div>
      </div>
      {parts.map((part, at) =>
        "skipped" in part && !opened.includes(at) ? (
          <button type="button" class="fold" onClick={() => open([...opened, at])}>{`⋯ ${many(part.skipped, "equal line")}`}</button>
        ) : (
          part.pairs.map((pair) => (
            <div class={`diff-pair${pair.same ? " same" : ""}`}>
              {line(pair.left, "removed", pair.same)}
              {line(pair.right, "added", pair.same)}
            </div>
          ))
        ),
      )}
    </div>
  );
}

function Server({ each, detail }: { each: Case; detail: Detail }) {
  const { target } = each;
  const logs = detail.logs ?? [];
  return (
    <Section title="Server" about={target.environment || target.vllm}>
      {target.command && (
        <>
          <div class="buttons">
            <Copy label="Copy command line" text={() => shell(target.command!)} />
          </div>
          <Text label="Command line of the server">{shell(target.command)}</Text>
        </>
      )}
      {logs.map((log, number) => (
        <details open={each.outcome !== "passed"}>
          <summary>{`Log of the case${log.source ? `: ${log.source}` : ""} (${many(log.lines.length, "line")})`}</summary>
          <pre class="prose log" tabIndex={0} role="region" aria-label={`Log ${number + 1} ${log.source}`}>
            {log.lines.map((line) => (
              <div class={/\b(ERROR|CRITICAL|Traceback)\b/.test(line) ? "log-error" : /\bWARNING\b/.test(line) ? "log-warning" : ""}>{line}</div>
            ))}
          </pre>
        </details>
      ))}
      <dl class="facts">
        <Fact name="device">{target.device}</Fact>
        <Fact name="front end">{target.frontend}</Fact>
        <Fact name="ready after">{target.startup_s === undefined ? "" : seconds(target.startup_s)}</Fact>
        <Fact name="node">{detail.node}</Fact>
        <Fact name="started">{detail.started ? when(detail.started) : ""}</Fact>
        <Fact name="tries">{each.attempts > 1 ? each.attempts : ""}</Fact>
        <Fact name="log files">{target.logs?.join(", ")}</Fact>
      </dl>
    </Section>
  );
}
