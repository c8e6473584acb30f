"""Conversations become records in a run folder."""

from __future__ import annotations

from dataclasses import replace

from vllm_harness._protocol import Exchange, Finding
from vllm_harness._protocol.conversation.exchange import Chunk
from vllm_harness._protocol.core.findings import Severity
from vllm_harness._runs.records import Arrival, CaseRecord, ExchangeRecord, Outcome, Piece
from vllm_harness._scenarios.mismatches import TurnMismatch
from vllm_harness._scenarios.results import Conversation, Prompt, TurnResult
from vllm_harness._scenarios.run_records import records_of
from vllm_harness._scenarios.transports import find_transport

STREAMED = replace(find_transport("chat"), streamed=True)
KNOWN = Finding("CC101", Severity.ERROR, 0, "$", "missing", known="vllm-1")
ASKED = Exchange({"model": "m"}, path="/v1/chat/completions")
PIECES = (Chunk(0.1, b"data: \xc3"), Chunk(0.2, b"\xbc\n\n"))


def test_a_turn_has_its_case_and_its_exchange() -> None:
    turn = TurnResult(
        "ask",
        mismatches=[TurnMismatch("text", "Paris", "Rome")],
        findings=[KNOWN],
        exchange=ASKED.answered(200, {"content-type": "text/event-stream"}, PIECES),
        prompt=Prompt((1, 2), "<|user|>"),
    )
    held = Conversation(STREAMED, [turn, TurnResult("then", reason="no answer to go on from")], attempts=2)
    case, exchange, cancelled = records_of(held, "scripted-m", 5.0, {"chat", "chat-stream"})
    assert isinstance(case, CaseRecord)
    assert (case.id, case.outcome, case.attempts, case.defects) == (
        "chat-stream/ask",
        Outcome.FINDING,
        2,
        ("vllm-1",),
    )
    assert "expected Paris, actual Rome" in case.reason
    assert isinstance(exchange, ExchangeRecord)
    assert {each.exchange for each in case.findings} == {exchange.id}
    assert exchange.stream == (Arrival(after=0.1, text="data: "), Arrival(after=0.2, text="ü\n\n"))
    assert (exchange.path, exchange.twin) == ("/v1/chat/completions", "chat/ask")
    assert exchange.prompt == (Piece(ids=(1, 2), text="<|user|>"),)
    assert isinstance(cancelled, CaseRecord)
    assert (cancelled.outcome, cancelled.reason) == (Outcome.CANCELLED, "no answer to go on from")


def test_findings_between_the_turns_have_a_separate_case() -> None:
    wrong = replace(KNOWN, known="")
    held = Conversation(find_transport("chat"), [TurnResult("ask")], findings=[wrong])
    turn, between = records_of(held, "t", 5.0, {"chat"})
    assert isinstance(turn, CaseRecord)
    assert turn.outcome is Outcome.PASSED
    assert isinstance(between, CaseRecord)
    assert (between.id, between.outcome) == ("chat/between the turns", Outcome.FINDING)
