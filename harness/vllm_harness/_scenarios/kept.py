"""A conversation of a scenario as records of a run folder."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from vllm_harness._runs.exchanges import record_of
from vllm_harness._runs.records import CaseRecord, ExchangeRecord, Outcome, Piece, RunFinding
from vllm_harness._scenarios.results import Conversation, TurnResult

_OUTCOMES = {
    "passed": Outcome.PASSED,
    "failed": Outcome.FINDING,
    "known": Outcome.KNOWN,
    "no call": Outcome.SKIPPED,
    "cancelled": Outcome.CANCELLED,
}


def records_of(
    conversation: Conversation, target: str, at: float, held: Collection[str]
) -> Iterator[CaseRecord | ExchangeRecord]:
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
        if turn.exchange is not None:
            yield _exchange_of(turn, conversation, target, at, held)
    if conversation.findings:
        yield _case(
            f"{label}/between the turns",
            target,
            label,
            Outcome.FINDING if any(each.counts for each in conversation.findings) else Outcome.PASSED,
            [RunFinding.of(each) for each in conversation.findings],
        )


def _case_of(turn: TurnResult, label: str, target: str, attempts: int) -> CaseRecord:
    name = f"{label}/{turn.turn}"
    findings = [RunFinding.of(each, name) for each in turn.findings]
    findings += [RunFinding(message=str(each), exchange=name, known=each.known) for each in turn.mismatches]
    made = _case(name, target, label, _OUTCOMES[turn.state], findings)
    reason = turn.reason or (
        "no call came, which the scenario does not mind" if turn.state == "no call" else ""
    )
    return made.model_copy(update={"attempts": attempts, **({"reason": reason} if reason else {})})


def _case(name: str, target: str, group: str, outcome: Outcome, findings: Iterable[RunFinding]) -> CaseRecord:
    found = tuple(findings)
    return CaseRecord(
        id=name,
        target=target,
        group=group,
        outcome=outcome,
        defects=tuple(dict.fromkeys(each.known for each in found if each.known)),
        reason=next((each.text for each in found if each.counts), ""),
        findings=found,
    )


def _exchange_of(
    turn: TurnResult, conversation: Conversation, target: str, at: float, held: Collection[str]
) -> ExchangeRecord:
    transport, prompt = conversation.transport, turn.prompt
    assert turn.exchange is not None
    other = replace(transport, streamed=not transport.streamed).label
    return record_of(
        turn.exchange,
        id=f"{transport.label}/{turn.turn}",
        target=target,
        case=f"{transport.label}/{turn.turn}",
        at=at,
        prompt=(Piece(ids=prompt.ids, text=prompt.text),) if prompt else (),
        twin=f"{other}/{turn.turn}" if other in held else "",
    )
