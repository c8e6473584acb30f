"""A conversation of a scenario as records of a run folder."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from vllm_harness.protocol import Finding
from vllm_harness.runs.records import Arrival, Case, Exchange, Outcome, Piece, RunFinding
from vllm_harness.scenarios.results import Conversation, TurnResult
from vllm_harness.scenarios.sending import Chunk

_OUTCOMES = {
    "passed": Outcome.PASSED,
    "failed": Outcome.FINDING,
    "known": Outcome.KNOWN,
    "no call": Outcome.SKIPPED,
    "cancelled": Outcome.CANCELLED,
}


def records_of(
    conversation: Conversation, target: str, at: float, held: Collection[str]
) -> Iterator[Case | Exchange]:
    """A case for each turn over a transport, with its exchange; one for what is wrong between the turns.

    Args:
        conversation: that was held.
        target: id of the server.
        at: when it was held, seconds since the epoch.
        held: labels of all transports over which the scenario was held.
    """
    label = conversation.transport.label
    for turn in conversation.turns:
        yield _case_of(turn, label, target, conversation.attempts)
        if turn.reply is not None:
            yield _exchange_of(turn, conversation, target, at, held)
    if conversation.findings:
        yield _case(
            f"{label}/between the turns",
            target,
            label,
            Outcome.FINDING if any(each.counts for each in conversation.findings) else Outcome.PASSED,
            [finding_of(each) for each in conversation.findings],
        )


def _case_of(turn: TurnResult, label: str, target: str, attempts: int) -> Case:
    name = f"{label}/{turn.turn}"
    findings = [finding_of(each, name) for each in turn.findings]
    findings += [RunFinding(message=str(each), exchange=name, known=each.known) for each in turn.mismatches]
    made = _case(name, target, label, _OUTCOMES[turn.state], findings)
    reason = turn.reason or (
        "no call came, which the scenario does not mind" if turn.state == "no call" else ""
    )
    return made.model_copy(update={"attempts": attempts, **({"reason": reason} if reason else {})})


def _case(name: str, target: str, group: str, outcome: Outcome, findings: Iterable[RunFinding]) -> Case:
    found = tuple(findings)
    return Case(
        id=name,
        target=target,
        group=group,
        outcome=outcome,
        defects=tuple(dict.fromkeys(each.known for each in found if each.known)),
        reason=next((each.text for each in found if each.counts), ""),
        findings=found,
    )


def finding_of(finding: Finding, exchange: str = "") -> RunFinding:
    """A finding of the validator as a run keeps it."""
    return RunFinding(
        code=finding.code,
        severity=str(finding.severity),
        message=finding.message,
        exchange=exchange,
        event_index=finding.event_index,
        path=finding.path,
        expected=finding.expected,
        actual=finding.actual,
        known=finding.known,
    )


def _exchange_of(
    turn: TurnResult, conversation: Conversation, target: str, at: float, held: Collection[str]
) -> Exchange:
    transport, reply = conversation.transport, turn.reply
    assert reply is not None
    other = replace(transport, streamed=not transport.streamed).label
    prompt = turn.prompt
    return Exchange(
        id=f"{transport.label}/{turn.turn}",
        target=target,
        case=f"{transport.label}/{turn.turn}",
        api=transport.api,
        path=transport.path,
        at=at,
        request=turn.request,
        status=reply.status or None,
        answer_headers={"content-type": reply.content_type} if reply.content_type else {},
        answer=None if reply.streamed else reply.body or reply.content.decode(errors="replace"),
        stream=tuple(_arrivals(reply.chunks)) if reply.streamed else (),
        seconds=reply.chunks[-1].at_s if reply.chunks else None,
        prompt=(Piece(ids=prompt.ids, text=prompt.text),) if prompt else (),
        twin=f"{other}/{turn.turn}" if other in held else "",
        error=reply.broken,
    )


def _arrivals(chunks: Iterable[Chunk]) -> Iterator[Arrival]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for chunk in chunks:
        yield Arrival(after=round(chunk.at_s, 6), text=decoder.decode(chunk.data))
