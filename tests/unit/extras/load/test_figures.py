"""Words of a conversation's own, what is counted, and what is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vllm_harness._exchange.answer import Answer, Call
from vllm_harness._exchange.building import ContentPart, Sent
from vllm_harness._protocol import Exchange, Finding, Severity
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.reading import records
from vllm_harness._runs.records import CaseRecord, ExchangeRecord, Header, Kind, Outcome, Series
from vllm_harness._scenarios.format import Turn
from vllm_harness._scenarios.judging import TurnMismatch
from vllm_harness._scenarios.results import TurnResult
from vllm_harness._scenarios.transports import TRANSPORTS
from vllm_harness._scripted.meaning import Meaning, Raw, ToolCall
from vllm_harness._scripted.quoting import Quoting, sample
from vllm_harness.extras.load.conversations import LEFT, LoadTurn
from vllm_harness.extras.load.health import ProcessSample, drift
from vllm_harness.extras.load.marks import mark, marked, mixed, repeating
from vllm_harness.extras.load.recorder import LoadRecorder
from vllm_harness.extras.load.streams import StreamResult
from vllm_harness.extras.load.tally import Distribution, LoadTally

TURN = Turn.model_validate({"name": "ask", "user": "Weather?", "expect": {"calls": [{"name": "look"}]}})
FINDING = Finding("RS101", Severity.ERROR, 3, "$.output[2].id", "it is wrong")
BROKEN = "ClientConnectorError: no"
CALL = Call("c1", "look", "{}")
CHAT, STREAMED = Exchange(path="/v1/chat/completions"), {"content-type": "text/event-stream"}


def taken(
    answer: Answer | None = None,
    *,
    status: int = 200,
    broken: str = "",
    reason: str = "",
    findings: tuple[Finding, ...] = (),
    mismatches: tuple[TurnMismatch, ...] = (),
    asked: bool = True,
    body: Any = None,
) -> LoadTurn:
    came = CHAT.answered(status, STREAMED, [(0.1, b"data: {}\n\n")], broken)
    result = TurnResult(
        "ask", reason, mismatches=list(mismatches), findings=list(findings), sent=Sent((), ()), answer=answer
    )
    heard = StreamResult(replace(came, seconds=0.4), body, [], 0.1, [0.1, 0.2], 3) if asked else None
    return LoadTurn(7, TRANSPORTS["chat"], TURN, result, heard, 2.0)


def tally(*turns: LoadTurn) -> LoadTally:
    whole = LoadTally()
    for each in turns:
        whole.add(each)
    return whole


def test_a_conversation_has_words_of_its_own() -> None:
    said = repeating(Meaning.of("Mild, ${x}.", reasoning="Hm.", calls=(ToolCall("look", {}),)))
    assert isinstance(said, Quoting)
    spoken = sample(said, "7")
    assert isinstance(spoken, Meaning)
    assert (spoken.text, spoken.reasoning) == (f"Mild, ${{x}}. {mark(7)}", "Hm.")
    thought = repeating(Meaning.of(reasoning="Hm.", calls=(ToolCall("look", {}),)))
    assert isinstance(thought, Quoting)
    assert sample(thought, "7") == Meaning.of(reasoning=f"Hm. {mark(7)}", calls=(ToolCall("look", {}),))
    alone = Meaning.of(calls=(ToolCall("look", {}),))
    assert repeating(alone) == alone
    assert repeating(Raw("raw")) == Raw("raw")


def test_the_user_says_them_last() -> None:
    assert marked((ContentPart(text="Hello"),), 7) == (ContentPart(text="Hello [conversation 7]"),)
    image = ContentPart(image="data:image/png;base64,AA")
    assert marked((image,), 7) == (image, ContentPart(text=mark(7)))


def test_words_of_another_conversation_are_found() -> None:
    assert mixed(Answer("completed", f"Mild {mark(7)}"), 7) is None
    found = mixed(Answer("completed", "Mild", f"Hm {mark(7)}{mark(71)}"), 7)
    assert found == TurnMismatch("conversation", mark(7), mark(71))
    assert mixed(Answer("completed", "Mild"), 7) is None


def test_what_is_counted() -> None:
    usage = {"usage": {"completion_tokens": 5}}
    whole = tally(
        taken(Answer("completed", calls=(CALL, Call("c2", "look", "{"))), body=usage),
        taken(Answer("completed", "None."), mismatches=(TurnMismatch("calls", "look", "no call"),)),
        taken(Answer("refused"), status=400, mismatches=(TurnMismatch("status", "completed", "HTTP 400"),)),
        taken(
            Answer("failed"), status=0, broken=BROKEN, mismatches=(TurnMismatch("answer", "whole", BROKEN),)
        ),
        taken(Answer("failed"), findings=(FINDING,)),
        taken(reason=LEFT),
        taken(reason="it continues turn ask", asked=False),
        taken(Answer("completed", calls=(CALL,)), mismatches=(TurnMismatch("conversation", "7", "8"),)),
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
    assert not tally(taken(Answer("completed", calls=(CALL,)))).wrong


def test_what_a_turn_names_is_no_problem() -> None:
    """A refusal that is known is no error; what is wrong beside it still counts."""
    refused = TurnMismatch("status", "completed", "HTTP 400", known="vllm-1")
    known = tally(taken(Answer("refused"), status=400, mismatches=(refused,)))
    assert (known.passed, known.known, known.errors, known.wrong) == (1, {"vllm-1": 1}, {}, False)
    beside = (replace(refused, what="text[0]"), TurnMismatch("text[1]", "a", "b"))
    wrong = tally(taken(Answer("completed"), mismatches=beside))
    assert (wrong.passed, wrong.known, wrong.mismatches) == (0, {"vllm-1": 1}, {"text[*]": 1})


def test_sums_hold_all() -> None:
    each = taken(Answer("completed", calls=(CALL,)), findings=(FINDING,))
    one, two = tally(each), tally(each, each)
    assert LoadTally.of([one, two]).as_json(3.0) == tally(each, each, each).as_json(3.0)
    assert LoadTally.of([]).as_json(0.0)["requests_a_second"] is None


def test_percentiles() -> None:
    times = Distribution()
    assert times.at(50.0) is None
    for number in range(1, 1001):
        times.add(number / 1000)
    assert times.at(50.0) == pytest.approx(0.5, rel=2e-3)
    assert times.at(99.0) == pytest.approx(0.99, rel=2e-3)
    assert times.as_json()["max"] == pytest.approx(1000.0, rel=2e-3)


def test_drift_leaves_the_first_quarter_aside() -> None:
    samples = [ProcessSample(float(n), [500.0, 100.0, 100.0, 110.0][n // 10], 5 + n // 30) for n in range(40)]
    found = drift(samples)
    assert found is not None
    assert (found.memory_mib, found.handles) == ((100.0, 110.0), (5, 6))
    assert drift(samples[:3]) is None


def test_the_folder_has_every_turn_and_the_first_exchange_of_a_kind(tmp_path: Path) -> None:
    wrong, known = taken(Answer("failed"), findings=(FINDING,)), Finding(**{**_fields(), "known": "vllm-1"})
    turns = [
        taken(Answer("completed", calls=(CALL,)), findings=(known,)),
        wrong,
        wrong,
        taken(reason="it continues turn ask", asked=False),
    ]
    with RunWriter.begin(tmp_path / "run", Header(kind=Kind.LOAD, started=1000.0)) as writer:
        keeper = LoadRecorder(writer, "qwen3", 1000.0)
        for each in turns:
            keeper.turn(each)
        keeper.figures([("chat", tally(*turns))], {"client": [ProcessSample(1.0, 50.0, 7)]})
        keeper.summary({"requests": 3})
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
