"""Checks over several exchanges: chains, calls and their outputs, ids, retrieval and replay."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_harness.protocol import schema
from vllm_harness.protocol.compare import compare_responses
from vllm_harness.protocol.differences import differences
from vllm_harness.protocol.findings import ABSENT, Finding, Report, Severity, brief
from vllm_harness.protocol.rules import SEVERITIES
from vllm_harness.protocol.stream import AnyEvent, as_json

Json = Mapping[str, Any]

_ENDED = tuple(schema.TERMINAL.values())
_OF_ONE_SENDING = frozenset({"obfuscation", *schema.RESEALED_FIELDS})
_OUTPUTS_OF_CALLS = tuple(f"{kind}_output" for kind in schema.CALLS)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answer.

    Attributes:
        request: the request body; empty where there was none or it is not known.
        body: the answer, where it came in one piece.
        events: the answer, where it was streamed.
        method: HTTP method.
        path: path of the URL with its query.
        status: HTTP status of the answer.
    """

    request: Json = field(default_factory=dict)
    body: Json | None = None
    events: Sequence[AnyEvent] | None = None
    method: str = "POST"
    path: str = "/v1/responses"
    status: int = 200

    @property
    def answer(self) -> Json | None:
        """The body, or what the terminal event of the stream carried."""
        if self.events is None:
            return self.body
        for event in reversed(self.events):
            value = as_json(event)
            if value is not None and value.get("type") in tuple(schema.TERMINAL):
                response = value.get("response")
                return response if isinstance(response, dict) else None
        return None


def validate_conversation(
    exchanges: Sequence[Exchange], *, complete: bool = True, known_ids: Collection[str] = ()
) -> list[Finding]:
    """Checks what holds between exchanges; each answer alone is for `validate_stream` and `validate_body`.

    Args:
        exchanges: in order.
        complete: they are the whole conversation; else a `previous_response_id` from before is no finding.
        known_ids: responses that exist although no exchange here made them.

    Returns:
        The findings, with paths from the list of exchanges (`$[2].request.previous_response_id`).
    """
    conversation = _Conversation(complete, known_ids)
    for number, exchange in enumerate(exchanges):
        conversation.take(exchange, f"$[{number}]")
    return conversation.report.findings


class _Conversation:
    def __init__(self, complete: bool, known_ids: Collection[str]) -> None:
        self.report = Report(SEVERITIES)
        self._complete = complete
        self._known_ids = set(known_ids)
        self._answers: dict[str, Exchange] = {}
        self._calls: dict[str, set[str]] = {}
        self._ids: dict[tuple[str, str], str] = {}

    def take(self, exchange: Exchange, path: str) -> None:
        if exchange.status >= 400:
            return
        if "messages" in exchange.request:
            self._check_messages(exchange.request["messages"], f"{path}.request.messages")
        elif exchange.method == "GET":
            self._on_retrieval(exchange, path)
        elif exchange.method == "POST" and _is_response_path(exchange.path):
            self._on_response(exchange, path)

    def _on_response(self, exchange: Exchange, path: str) -> None:
        request, answer = exchange.request, exchange.answer
        previous = request.get("previous_response_id")
        if isinstance(previous, str):
            self._check_previous(previous, answer, path)
        calls = self._check_outputs(request, previous, f"{path}.request.input")
        if answer is None:
            return
        identifier = answer.get("id")
        if isinstance(identifier, str):
            if identifier in self._answers:
                self.report.add(
                    "CV104",
                    "id of the response is that of an earlier one",
                    f"{path}.answer.id",
                    "an id of its own",
                    brief(identifier),
                )
            self._answers[identifier] = exchange
            self._calls[identifier] = calls | _call_ids(answer.get("output"))
        self._check_ids(answer.get("output"), f"{path}.answer.output")

    def _check_previous(self, previous: str, answer: Json | None, path: str) -> None:
        if previous not in self._answers and previous not in self._known_ids:
            severity = None if self._complete else Severity.INFO
            self.report.add(
                "CV101",
                "previous_response_id names a response that no exchange made",
                f"{path}.request.previous_response_id",
                "the id of an earlier response",
                brief(previous),
                severity,
            )
        got = answer.get("previous_response_id") if answer is not None else previous
        if got != previous:
            self.report.add(
                "CV102",
                "the answer names another previous response",
                f"{path}.answer.previous_response_id",
                brief(previous),
                brief(got),
            )

    def _check_outputs(self, request: Json, previous: object, path: str) -> set[str]:
        """Every tool output of the input answers a call; returns the calls known by then."""
        items = request.get("input")
        items = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
        calls = set(self._calls.get(previous, ())) if isinstance(previous, str) else set()
        open_world = "conversation" in request or any(item.get("type") == "item_reference" for item in items)
        if isinstance(previous, str) and previous not in self._calls:
            open_world = True
        for number, item in enumerate(items):
            if (
                item.get("type") in _OUTPUTS_OF_CALLS
                and str(item.get("call_id")) not in calls
                and not open_world
            ):
                self.report.add(
                    "CV103",
                    "a tool output answers no call that was made",
                    f"{path}[{number}].call_id",
                    "the call_id of a call",
                    brief(item.get("call_id")),
                )
            calls |= _call_ids([item])
        return calls

    def _check_ids(self, output: object, path: str) -> None:
        for number, item in enumerate(output if isinstance(output, list) else ()):
            if not isinstance(item, dict):
                continue
            for key, code in (("id", "CV105"), ("call_id", "CV108")):
                value = item.get(key)
                if not isinstance(value, str) or (key == "call_id" and item.get("type") not in schema.CALLS):
                    continue
                place = f"{path}[{number}].{key}"
                first = self._ids.setdefault((key, value), place)
                if first != place:
                    self.report.add(
                        code, f"{key} repeats that at {first}", place, "an id of its own", brief(value)
                    )

    def _on_retrieval(self, exchange: Exchange, path: str) -> None:
        match = re.search(r"/responses/([^/?]+)(?:\?(.*))?$", exchange.path)
        original = self._answers.get(match.group(1)) if match else None
        if match is None or original is None:
            return
        if exchange.events is not None:
            after = re.search(r"starting_after=(\d{1,18})", match.group(2) or "")
            self._check_replay(original, exchange, int(after.group(1)) if after else -1, path)
        elif exchange.body is not None and original.answer is not None:
            self._check_stored(original.answer, exchange.body, path)

    def _check_stored(self, answer: Json, stored: Json, path: str) -> None:
        if answer.get("status") not in _ENDED or stored.get("status") not in _ENDED:
            return
        for difference in compare_responses(answer, stored, same_answer=True, ignore=("billing",)):
            self.report.add(
                "CV106",
                "the stored response is not the one that was answered",
                f"{path}.answer{difference.path[1:]}",
                difference.expected,
                difference.got,
            )

    def _check_replay(self, original: Exchange, replay: Exchange, after: int, path: str) -> None:
        wanted = [event for event in _json_events(original) if _number(event) > after]
        got = list(_json_events(replay))
        if original.events is None:
            return
        if len(wanted) != len(got):
            self.report.add(
                "CV107",
                "the replay has not as many events as the original tail",
                f"{path}.events",
                f"{len(wanted)} events",
                f"{len(got)} events",
            )
        for number, (left, right) in enumerate(zip(wanted, got, strict=False)):
            difference = next(differences(left, right, ignore=_OF_ONE_SENDING), None)
            if difference is not None:
                self.report.add(
                    "CV107",
                    "the replay differs from the original tail",
                    f"{path}.events[{number}]{difference.path[1:]}",
                    brief(difference.left),
                    brief(difference.right),
                )
                return

    def _check_messages(self, messages: object, path: str) -> None:
        calls: set[object] = set()
        for number, message in enumerate(messages if isinstance(messages, list) else ()):
            if not isinstance(message, dict):
                continue
            made = message.get("tool_calls")
            calls |= {
                call["id"]
                for call in made or ()
                if isinstance(call, dict) and isinstance(call.get("id"), str)
            }
            answered = message.get("tool_call_id", ABSENT)
            if message.get("role") == "tool" and str(answered) not in calls:
                self.report.add(
                    "CV103",
                    "a tool message answers no call that was made",
                    f"{path}[{number}].tool_call_id",
                    "the id of a call",
                    brief(answered),
                )


def _is_response_path(path: str) -> bool:
    return path.split("?")[0].rstrip("/").endswith("/responses")


def _json_events(exchange: Exchange) -> Iterator[dict[str, Any]]:
    for event in exchange.events or ():
        value = as_json(event)
        if value is not None:
            yield value


def _number(event: Json) -> int:
    number = event.get("sequence_number")
    return number if isinstance(number, int) else -1


def _call_ids(items: object) -> set[str]:
    return {
        item["call_id"]
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, dict)
        and item.get("type") in schema.CALLS
        and isinstance(item.get("call_id"), str)
    }
