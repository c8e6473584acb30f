"""Converts conversations to the records of a run folder."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from vllm_harness._runs.exchanges import record_of
from vllm_harness._runs.records import CaseRecord, ExchangeRecord, Outcome, Piece, RunFinding, case_outcome
from vllm_harness._scenarios.results import Conversation, TurnResult


def records_of(
    conversation: Conversation, target: str, at: float, labels: Collection[str]
) -> Iterator[CaseRecord | ExchangeRecord]:
    """Yields a case for each turn with its exchange, and a case for the findings between turns.

    Args:
        conversation: the conversation.
        target: the id of the server.
        at: the time of the conversation, in seconds since the epoch.
        labels: the labels of all transports of the run.
    """
    label = conversation.transport.label
    for turn in conversation.turns:
        yield _turn_case(turn, label, target, conversation.attempts)
        if turn.exchange is not None:
            yield _exchange_of(turn, conversation, target, at, labels)
    if conversation.findings:
        findings = [RunFinding.of(finding) for finding in conversation.findings]
        yield _case(f"{label}/between the turns", target, label, case_outcome(findings), findings)


def _turn_case(turn: TurnResult, label: str, target: str, attempts: int) -> CaseRecord:
    name = f"{label}/{turn.turn}"
    findings = [RunFinding.of(finding, name) for finding in turn.findings]
    findings += [
        RunFinding(message=str(mismatch), exchange=name, known=mismatch.known) for mismatch in turn.mismatches
    ]
    case = _case(name, target, label, turn.outcome, findings)
    no_call = "no call came, which the scenario allows" if turn.outcome is Outcome.SKIPPED else ""
    reason = turn.reason or no_call or case.reason
    return case.model_copy(update={"attempts": attempts, "reason": reason})


def _case(name: str, target: str, group: str, outcome: Outcome, findings: list[RunFinding]) -> CaseRecord:
    return CaseRecord(
        id=name,
        target=target,
        group=group,
        outcome=outcome,
        defects=tuple(dict.fromkeys(finding.known for finding in findings if finding.known)),
        reason=next((finding.text for finding in findings if finding.counts), ""),
        findings=tuple(findings),
    )


def _exchange_of(
    turn: TurnResult, conversation: Conversation, target: str, at: float, labels: Collection[str]
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
        twin=f"{other}/{turn.turn}" if other in labels else "",
    )
