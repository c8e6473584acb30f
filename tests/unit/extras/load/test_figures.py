"""How a load test marks conversations, counts results, and writes its run folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vllm_harness._exchange.answer import Answer, Call
from vllm_harness._exchange.building import ContentPart, TurnInput
from vllm_harness._protocol import Exchange, Finding, Severity
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.reading import records
from vllm_harness._runs.records import CaseRecord, ExchangeRecord, Header, Kind, Outcome, Series
from vllm_harness._runs.report.run import counts, read_run
from vllm_harness._scenarios.format import Turn
from vllm_harness._scenarios.mismatches import TurnMismatch
from vllm_harness._scenarios.results import TurnResult
from vllm_harness._scenarios.transports import TRANSPORTS
from vllm_harness._scripted.meaning import Meaning, Raw, ToolCall
from vllm_harness._scripted.quoting import Quoting, sample
from vllm_harness.extras.load.conversations import LEFT, LoadTurn
from vllm_harness.extras.load.health import ProcessSample, drift
from vllm_harness.extras.load.marks import mark, marked, mixed_up, repeating
from vllm_harness.extras.load.recorder import LoadRecorder
from vllm_harness.extras.load.streams import StreamResult
from vllm_harness.extras.load.tally import Distribution, LoadTally, summary_rows

TURN = Turn.model_validate({"name": "ask", "user": "Weather?", "expect": {"calls": [{"name": "look"}]}})
FINDING = Finding("RS101", Severity.ERROR, 3, "$.output[2].id", "it is wrong")
BROKEN = "ClientConnectorError: no"
CALL = Call("c1", "look", "{}")
CHAT, STREAMED = Exchange(path="/v1/chat/completions"), {"content-type": "text/event-stream"}


def load_turn(
    answer: Answer | None = None,
    *,
    status: int = 200,
    broken: str = "",
    reason: str = "",
    findings: tuple[Finding, ...] = (),
    mismatches: tuple[TurnMismatch, ...] = (),
    sent: bool = True,
    body: Any = None,
) -> LoadTurn:
    exchange = CHAT.answered(status, STREAMED, [(0.1, b"data: {}\n\n")], broken)
    result = TurnResult(
        "ask",
        reason,
        mismatches=list(mismatches),
        findings=list(findings),
        sent=TurnInput((), ()),
        answer=answer,
    )
    stream = StreamResult(replace(exchange, seconds=0.4), body, [], 0.1, [0.1, 0.2], 3) if sent else None
    return LoadTurn(7, TRANSPORTS["chat"], TURN, result, stream, 2.0)


def tally(*turns: LoadTurn) -> LoadTally:
    whole = LoadTally()
    for turn in turns:
        whole.add(turn)
    return whole


def test_a_scripted_answer_repeats_the_mark() -> None:
    said = repeating(Meaning.of("Mild, ${x}.", reasoning="Hm.", calls=(ToolCall("look", {}),)))
    assert isinstance(said, Quoting)
    spoken = sample(said, "7")
    assert isinstance(spoken, Meaning)
    assert (spoken.text, spoken.reasoning) == (f"Mild, ${{x}}. {mark(7)}", "Hm.")
    reasoning = repeating(Meaning.of(reasoning="Hm.", calls=(ToolCall("look", {}),)))
    assert isinstance(reasoning, Quoting)
    assert sample(reasoning, "7") == Meaning.of(reasoning=f"Hm. {mark(7)}", calls=(ToolCall("look", {}),))
    alone = Meaning.of(calls=(ToolCall("look", {}),))
    assert repeating(alone) == alone
    assert repeating(Raw("raw")) == Raw("raw")


def test_the_user_says_the_mark_last() -> None:
    assert marked((ContentPart(text="Hello"),), 7) == (ContentPart(text="Hello [conversation 7]"),)
    image = ContentPart(image="data:image/png;base64,AA")
    assert marked((image,), 7) == (image, ContentPart(text=mark(7)))


def test_the_mark_of_another_conversation_is_a_mismatch() -> None:
    assert mixed_up(Answer("completed", f"Mild {mark(7)}"), 7) is None
    mismatch = mixed_up(Answer("completed", "Mild", f"Hm {mark(7)}{mark(71)}"), 7)
    assert mismatch == TurnMismatch("conversation", mark(7), mark(71))
    assert mixed_up(Answer("completed", "Mild"), 7) is None


def test_counts() -> None:
    usage = {"usage": {"completion_tokens": 5}}
    whole = tally(
        load_turn(Answer("completed", calls=(CALL, Call("c2", "look", "{"))), body=usage),
        load_turn(Answer("completed", "None."), mismatches=(TurnMismatch("calls", "look", "no call"),)),
        load_turn(
            Answer("refused"), status=400, mismatches=(TurnMismatch("status", "completed", "HTTP 400"),)
        ),
        load_turn(
            Answer("failed"), status=0, broken=BROKEN, mismatches=(TurnMismatch("answer", "whole", BROKEN),)
        ),
        load_turn(Answer("failed"), findings=(FINDING,)),
        load_turn(reason=LEFT),
        load_turn(reason="it continues turn ask", sent=False),
        load_turn(Answer("completed", calls=(CALL,)), mismatches=(TurnMismatch("conversation", "7", "8"),)),
    )
    assert (whole.requests, whole.passed, whole.left, whole.left_out) == (7, 1, 1, 1)
    assert (whole.calls, whole.missing, whole.unparsable, whole.mixed) == (3, 1, 1, 1)
    assert whole.errors == {"HTTP 400": 1, "ClientConnectorError": 1, "failed in the stream": 1}
    assert whole.findings == {"RS101 $.output[*].id": 1}
    assert whole.mismatches == {"calls": 1, "status": 1, "answer": 1, "conversation": 1}
    assert whole.tokens == 5
    assert whole.gap.count == 12
    assert whole.turn.count == 5
    assert whole.wrong
    assert not tally(load_turn(Answer("completed", calls=(CALL,)))).wrong


def test_a_defect_that_a_turn_names_does_not_count() -> None:
    """A known refusal is not an error; other problems of the turn still count."""
    refused = TurnMismatch("status", "completed", "HTTP 400", known="vllm-1")
    known = tally(load_turn(Answer("refused"), status=400, mismatches=(refused,)))
    assert (known.passed, known.known_turns, known.known) == (0, 1, {"vllm-1": 1})
    assert (known.errors, known.wrong) == ({}, False)
    beside = (replace(refused, what="text[0]"), TurnMismatch("text[1]", "a", "b"))
    wrong = tally(load_turn(Answer("completed"), mismatches=beside))
    assert (wrong.passed, wrong.known_turns, wrong.known, wrong.mismatches) == (
        0,
        0,
        {"vllm-1": 1},
        {"text[*]": 1},
    )


def test_sum_of_tallies() -> None:
    turn = load_turn(Answer("completed", calls=(CALL,)), findings=(FINDING,))
    one, two = tally(turn), tally(turn, turn)
    assert LoadTally.of([one, two]).as_json(3.0) == tally(turn, turn, turn).as_json(3.0)
    assert LoadTally.of([]).as_json(0.0)["requests_a_second"] is None


def test_percentiles() -> None:
    times = Distribution()
    assert times.at(50.0) is None
    for number in range(1, 1001):
        times.add(number / 1000)
    assert times.at(50.0) == pytest.approx(0.5, rel=2e-3)
    assert times.at(99.0) == pytest.approx(0.99, rel=2e-3)
    assert times.as_json()["max"] == pytest.approx(1000.0, rel=2e-3)


def test_drift_ignores_the_first_quarter() -> None:
    samples = [ProcessSample(float(n), [500.0, 100.0, 100.0, 110.0][n // 10], 5 + n // 30) for n in range(40)]
    change = drift(samples)
    assert change is not None
    assert (change.memory_mib, change.handles) == ((100.0, 110.0), (5, 6))
    assert drift(samples[:3]) is None


def test_run_folder(tmp_path: Path) -> None:
    wrong, known = (
        load_turn(Answer("failed"), findings=(FINDING,)),
        Finding(**{**_fields(), "known": "vllm-1"}),
    )
    turns = [
        load_turn(Answer("completed", calls=(CALL,)), findings=(known,)),
        wrong,
        wrong,
        load_turn(reason="it continues turn ask", sent=False),
    ]
    with RunWriter.begin(tmp_path / "run", Header(kind=Kind.LOAD, started=1000.0)) as writer:
        recorder = LoadRecorder(writer, "qwen3", 1000.0)
        for turn in turns:
            recorder.record_turn(turn)
        recorder.record_figures([("chat", tally(*turns))], {"client": [ProcessSample(1.0, 50.0, 7)]})
        recorder.write_summary({"requests": 3})
    read = [record for _, record in records(tmp_path / "run")]
    cases = [record for record in read if isinstance(record, CaseRecord)]
    assert [case.outcome for case in cases] == [
        Outcome.KNOWN,
        Outcome.FINDING,
        Outcome.FINDING,
        Outcome.CANCELLED,
    ]
    assert {(case.id, case.group) for case in cases} == {("7/ask", "chat")}
    assert cases[0].defects == ("vllm-1",)
    (exchange,) = [record for record in read if isinstance(record, ExchangeRecord)]
    assert [each.text for each in exchange.stream] == ["data: {}\n\n"]
    assert cases[1].findings[0].exchange == exchange.id == "7/ask"
    series = {record.name for record in read if isinstance(record, Series)}
    assert {"time to first token, chat", "memory, client", "handles, client"} <= series
    assert (tmp_path / "run" / "summary.json").read_text() == '{\n  "requests": 3\n}\n'


def _fields() -> dict[str, Any]:
    return {each: getattr(FINDING, each) for each in Finding.__slots__}


def test_the_terminal_counts_as_the_run_folder_does(tmp_path: Path) -> None:
    """A turn whose problems are all known counts as known: it has neither passed nor failed."""
    known = replace(FINDING, known="vllm-1")
    lost = TurnMismatch("calls", "look", "no call", known="vllm-2")
    right = Answer("completed", calls=(CALL,))
    turns = [
        load_turn(right),
        load_turn(right, findings=(known,)),
        load_turn(right, mismatches=(lost,), findings=(known,)),
        load_turn(right, findings=(known, FINDING)),
    ]
    with RunWriter.begin(tmp_path / "run", Header(kind=Kind.LOAD, started=0.0)) as writer:
        recorder = LoadRecorder(writer, "qwen3", 0.0)
        for number, turn in enumerate(turns):
            recorder.record_turn(replace(turn, conversation=number))
        recorder.record_findings(1, TRANSPORTS["chat"], [known])
    counted = counts(case for case in read_run(tmp_path / "run").cases if "between" not in case.id)
    (row,) = summary_rows([("chat", tally(*turns))], 1.0)
    assert row[1:4] == ("4", str(counted[Outcome.PASSED]), str(counted[Outcome.KNOWN])) == ("4", "1", "2")
    assert counted[Outcome.FINDING] == 1
    assert [case.outcome for case in read_run(tmp_path / "run").cases if "between" in case.id] == [
        Outcome.KNOWN
    ]
