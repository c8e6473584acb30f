"""What is wrong with one exchange: by the rules of its API, by the scenario, and by the script."""

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
"""What a mismatch of the calls' names is about."""
ANSWER, OF_STATUS = "answer", "status"
STATUS = (ANSWER, OF_STATUS)
"""What a mismatch is about where an answer did not end as it should; nothing else is looked at then."""


@dataclass(frozen=True)
class TurnMismatch:
    """Where an answer is not as the scenario expects it.

    Attributes:
        what: such as `calls[0].arguments.job_id`.
        expected, actual: in words or as JSON.
        known: the defect of vLLM that it is; else empty.
    """

    what: str
    expected: str
    actual: str
    known: str = ""

    def __str__(self) -> str:
        return f"{self.what}: expected {self.expected}, actual {self.actual}"


def mismatches(expected: Expectation, exchange: Exchange, answer: Answer) -> list[TurnMismatch]:
    """Where an answer is not as expected; where its status is not, nothing else is looked at."""
    if exchange.broken:
        return [TurnMismatch(ANSWER, "a whole answer", _broken(exchange))]
    if answer.status != expected.status:
        return [TurnMismatch(OF_STATUS, expected.status, _status(exchange, answer))]
    found = []
    if expected.http not in (None, exchange.status):
        found.append(TurnMismatch("http", str(expected.http), str(exchange.status)))
    found += _of_answer(expected, answer)
    if exchange.streamed and (kinds := _kinds(expected, exchange)):
        found += _of_events(kinds, exchange.json_events)
    return found


def _kinds(expected: Expectation, exchange: Exchange) -> Sequence[str]:
    return expected.events.get(exchange.api, ()) if exchange.api else ()


def _broken(exchange: Exchange) -> str:
    hint = " (`limits.request_s` of the model entry)" if "Timeout" in exchange.broken else ""
    return f"{exchange.broken}{hint}"


def _status(exchange: Exchange, answer: Answer) -> str:
    if answer.status != "refused":
        return answer.status
    return f"HTTP {exchange.status}: {exchange.content[:300].decode('utf-8', 'replace')}"


def _of_answer(expected: Expectation, answer: Answer) -> Iterator[TurnMismatch]:
    yield from _of_calls(expected.calls, answer.calls)
    for number, predicate in enumerate(expected.text):
        if objection := predicate.objection(answer.text):
            yield TurnMismatch(f"text[{number}]", f"a text {objection}", brief(answer.text))


def _of_calls(expected: Sequence[CallExpectation] | None, calls: Sequence[Call]) -> Iterator[TurnMismatch]:
    if expected is None:
        return
    if [(call.name, call.asks) for call in calls] != [(call.name, call.asks) for call in expected]:
        yield TurnMismatch(CALLS, _names(expected), _names(calls))
        return
    for number, (wanted, call) in enumerate(zip(expected, calls, strict=True)):
        place, values = f"calls[{number}].arguments", call.values
        if values is None:
            yield TurnMismatch(place, "a JSON object", brief(call.arguments))
            continue
        for name, objection in objections(wanted.arguments, values):
            actual = brief(values[name]) if name in values else "nothing"
            yield TurnMismatch(f"{place}.{name}", objection, actual)


def _names(calls: Sequence[CallExpectation | Call]) -> str:
    return ", ".join(f"{call.name}{' (asks)' * call.asks}" for call in calls) or "no call"


def _of_events(expected: Sequence[str], events: Sequence[Json]) -> Iterator[TurnMismatch]:
    kinds = iter([str(event.get("type")) for event in events])
    for number, kind in enumerate(expected):
        if kind not in kinds:  # takes all up to the one that it finds
            came = ", ".join(dict.fromkeys(str(event.get("type")) for event in events))
            yield TurnMismatch(f"events[{number}]", f"{kind}, after those before it", came)
            return


def said_findings(said: Meaning, answer: Answer, place: str, transport: str) -> list[Finding]:
    """Where an answer does not mean what the scripted model said."""
    return compared(_scripted(said), answer, place, ("the script", transport))


def contradictions(scenario: Scenario, turn: Turn) -> list[TurnMismatch]:
    """Where what the scripted model says in a turn is itself not as the turn expects, so that it must fail.

    Nothing is told of a turn that is not to be completed, whose calls the server answers by itself, or whose
    words are not given by their meaning.
    """
    if turn.expect.status != "completed" or turn.known or scenario.of_server or len(turn.say) != 1:
        return []
    said = turn.say[0].as_say()
    if not isinstance(said, Meaning):
        return []
    found = _of_answer(turn.expect, _scripted(said))
    may_miss = scenario.missing_tool_call != "error_stop"
    return [each for each in found if not (may_miss and each.what == CALLS)]


def _scripted(said: Meaning) -> Answer:
    return Answer("completed", said.text, said.reasoning, tuple(map(_call_of, said.calls)))


def compared(left: Answer, right: Answer, place: str, labels: tuple[str, str]) -> list[Finding]:
    """Where two answers differ in meaning, at paths below a place."""
    found = differences(left.meaning(), right.meaning(), path=place)
    return [as_finding(difference, *labels) for difference in found]


def compared_roughly(left: Answer, right: Answer, place: str, labels: tuple[str, str]) -> list[Finding]:
    """Where two answers differ in how they end or in which tools they call, at paths below a place."""
    rough = [{"status": each.status, "calls": [call.name for call in each.calls]} for each in (left, right)]
    return [as_finding(difference, *labels) for difference in differences(*rough, path=place)]


def _call_of(call: ToolCall) -> Call:
    return Call("", call.name, call.arguments_json)
