"""Compares an answer with what the scenario expects and with what the script said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vllm_harness._exchange.answer import Answer, Call
from vllm_harness._protocol import Exchange, Finding
from vllm_harness._protocol.conversation.compare import as_finding
from vllm_harness._protocol.core.differences import differences
from vllm_harness._protocol.core.events import Json
from vllm_harness._protocol.core.findings import brief
from vllm_harness._scenarios.format import CallExpectation, Expectation, Scenario, Turn
from vllm_harness._scenarios.predicates import objections
from vllm_harness._scripted.meaning import Meaning, ToolCall

OK = 200
CALLS = "calls"
"""The subject of a mismatch between the names of the calls."""
ANSWER, OF_STATUS = "answer", "status"
HOW_IT_ENDED = (ANSWER, OF_STATUS)
"""The subjects of mismatches in how an answer ended; nothing else is compared then."""


@dataclass(frozen=True)
class TurnMismatch:
    """A difference between an answer and what the scenario expects.

    Attributes:
        what: its subject, such as `calls[0].arguments.job_id`.
        expected, actual: both sides, in words or as JSON.
        known: the id of the known defect that explains it; empty if none does.
    """

    what: str
    expected: str
    actual: str
    known: str = ""

    @property
    def counts(self) -> bool:
        """Whether no known defect explains it."""
        return not self.known

    def __str__(self) -> str:
        return f"{self.what}: expected {self.expected}, actual {self.actual}"


def mismatches(expected: Expectation, exchange: Exchange, answer: Answer) -> list[TurnMismatch]:
    """Lists how an answer differs from what is expected; if the status differs, nothing else is compared."""
    if exchange.broken:
        return [TurnMismatch(ANSWER, "a whole answer", _broken(exchange))]
    if answer.status != expected.status:
        return [TurnMismatch(OF_STATUS, expected.status, _status(exchange, answer))]
    differing = []
    if expected.http not in (None, exchange.status):
        differing.append(TurnMismatch("http", str(expected.http), str(exchange.status)))
    differing += _in_answer(expected, answer)
    if exchange.streamed and exchange.api in expected.events:
        differing += _in_events(expected.events[exchange.api], exchange.json_events)
    return differing


def _broken(exchange: Exchange) -> str:
    hint = " (`limits.request_s` of the model entry)" if "Timeout" in exchange.broken else ""
    return f"{exchange.broken}{hint}"


def _status(exchange: Exchange, answer: Answer) -> str:
    if answer.status != "refused":
        return answer.status
    return f"HTTP {exchange.status}: {exchange.content[:300].decode('utf-8', 'replace')}"


def _in_answer(expected: Expectation, answer: Answer) -> Iterator[TurnMismatch]:
    yield from _in_calls(expected.calls, answer.calls)
    for number, predicate in enumerate(expected.text):
        if objection := predicate.objection(answer.text):
            yield TurnMismatch(f"text[{number}]", f"a text {objection}", brief(answer.text))


def _in_calls(expected: Sequence[CallExpectation] | None, calls: Sequence[Call]) -> Iterator[TurnMismatch]:
    if expected is None:
        return
    if [(call.name, call.asks) for call in calls] != [(call.name, call.asks) for call in expected]:
        yield TurnMismatch(CALLS, _names(expected), _names(calls))
        return
    for number, (expectation, call) in enumerate(zip(expected, calls, strict=True)):
        place, values = f"calls[{number}].arguments", call.values
        if values is None:
            yield TurnMismatch(place, "a JSON object", brief(call.arguments))
            continue
        for name, objection in objections(expectation.arguments, values):
            actual = brief(values[name]) if name in values else "nothing"
            yield TurnMismatch(f"{place}.{name}", objection, actual)


def _names(calls: Sequence[CallExpectation | Call]) -> str:
    return ", ".join(f"{call.name}{' (asks)' * call.asks}" for call in calls) or "no call"


def _in_events(expected: Sequence[str], events: Sequence[Json]) -> Iterator[TurnMismatch]:
    kinds = iter([str(event.get("type")) for event in events])
    for number, kind in enumerate(expected):
        if kind not in kinds:  # consumes the kinds up to the match
            came = ", ".join(dict.fromkeys(str(event.get("type")) for event in events))
            yield TurnMismatch(f"events[{number}]", f"{kind}, after the events before it", came)
            return


def said_findings(said: Meaning, answer: Answer, place: str, transport: str) -> list[Finding]:
    """Lists where the meaning of an answer differs from what the scripted model said."""
    return compared(_scripted(said), answer, place, ("the script", transport))


def contradictions(scenario: Scenario, turn: Turn) -> list[TurnMismatch]:
    """Lists where the script of a turn contradicts what the turn expects, so that it must fail.

    Turns that expect another status than `completed`, whose calls the server answers itself, or whose script
    is not a meaning are not checked.
    """
    if turn.expect.status != "completed" or turn.known or scenario.of_server or len(turn.say) != 1:
        return []
    said = turn.say[0].as_say()
    if not isinstance(said, Meaning):
        return []
    differing = _in_answer(turn.expect, _scripted(said))
    may_miss = scenario.missing_tool_call != "error_stop"
    return [mismatch for mismatch in differing if not (may_miss and mismatch.what == CALLS)]


def _scripted(said: Meaning) -> Answer:
    return Answer("completed", said.text, said.reasoning, tuple(map(_call_of, said.calls)))


def compared(left: Answer, right: Answer, place: str, labels: tuple[str, str]) -> list[Finding]:
    """Lists where two answers differ in meaning, at paths below a place."""
    differing = differences(left.meaning(), right.meaning(), path=place)
    return [as_finding(difference, *labels) for difference in differing]


def compared_roughly(left: Answer, right: Answer, place: str, labels: tuple[str, str]) -> list[Finding]:
    """Lists where two answers differ in how they end or in which tools they call, at paths below a place."""
    rough = [{"status": one.status, "calls": [call.name for call in one.calls]} for one in (left, right)]
    return [as_finding(difference, *labels) for difference in differences(*rough, path=place)]


def _call_of(call: ToolCall) -> Call:
    return Call("", call.name, call.arguments_json)
