"""Checks across exchanges: chains, calls and their outputs, ids, retrieval and replay."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from vllm_harness._protocol.conversation import rules
from vllm_harness._protocol.conversation.compare import compare_responses
from vllm_harness._protocol.conversation.exchange import Exchange
from vllm_harness._protocol.core.differences import differences
from vllm_harness._protocol.core.events import CALL_ITEMS
from vllm_harness._protocol.core.findings import ABSENT, Finding, Severity, brief
from vllm_harness._protocol.core.report import Report
from vllm_harness._protocol.responses import schema

_ENDED = tuple(schema.TERMINAL.values())
_OF_ONE_SENDING = frozenset({"obfuscation", *schema.RESEALED_FIELDS})
_OUTPUTS_OF_CALLS = tuple(f"{kind}_output" for kind in CALL_ITEMS)


def validate_conversation(
    exchanges: Sequence[Exchange], *, complete: bool = True, known_ids: Collection[str] = ()
) -> list[Finding]:
    """Checks the consistency between exchanges; `validate_stream` and `validate_body` check single answers.

    Args:
        exchanges: the exchanges, in order.
        complete: whether they are the whole conversation; if not, an unknown `previous_response_id` is
            reported as information.
        known_ids: the ids of earlier responses, which none of the exchanges created.

    Returns:
        The findings; their paths begin at the list of exchanges (`$[2].request.previous_response_id`).
    """
    conversation = _Conversation(complete, known_ids)
    for number, exchange in enumerate(exchanges):
        conversation.take(exchange, f"$[{number}]")
    return conversation.report.findings


class _Conversation:
    def __init__(self, complete: bool, known_ids: Collection[str]) -> None:
        self.report = Report()
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
        request, answer = exchange.request, exchange.whole
        previous = request.get("previous_response_id")
        if isinstance(previous, str):
            self._check_previous(previous, answer, path)
        calls = self._check_outputs(request, previous, f"{path}.request.input")
        if answer is None:
            return
        identifier = answer.get("id")
        if isinstance(identifier, str):
            if identifier in self._answers:
                self.report.add(rules.CV104, f"{path}.answer.id", "a unique id", brief(identifier))
            self._answers[identifier] = exchange
            self._calls[identifier] = calls | _call_ids(answer.get("output"))
        self._check_ids(answer.get("output"), f"{path}.answer.output")

    def _check_previous(self, previous: str, answer: Mapping[str, Any] | None, path: str) -> None:
        if previous not in self._answers and previous not in self._known_ids:
            severity = None if self._complete else Severity.INFO
            place, expected = f"{path}.request.previous_response_id", "the id of an earlier response"
            self.report.add(rules.CV101, place, expected, brief(previous), severity)
        actual = answer.get("previous_response_id") if answer is not None else previous
        if actual != previous:
            place = f"{path}.answer.previous_response_id"
            self.report.add(rules.CV102, place, brief(previous), brief(actual))

    def _check_outputs(self, request: Mapping[str, Any], previous: object, path: str) -> set[str]:
        """Checks that every tool output of the input answers a call; returns the call ids known so far."""
        items = request.get("input")
        items = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
        calls = set(self._calls.get(previous, ())) if isinstance(previous, str) else set()
        open_world = "conversation" in request or any(item.get("type") == "item_reference" for item in items)
        if isinstance(previous, str) and previous not in self._calls:
            open_world = True
        for number, item in enumerate(items):
            call_id = item.get("call_id")
            if item.get("type") in _OUTPUTS_OF_CALLS and str(call_id) not in calls and not open_world:
                place = f"{path}[{number}].call_id"
                self.report.add(rules.CV103, place, "the call_id of a call", brief(call_id))
            calls |= _call_ids([item])
        return calls

    def _check_ids(self, output: object, path: str) -> None:
        for number, item in enumerate(output if isinstance(output, list) else ()):
            if not isinstance(item, dict):
                continue
            for key, rule in (("id", rules.CV105), ("call_id", rules.CV108)):
                value = item.get(key)
                if not isinstance(value, str) or (key == "call_id" and item.get("type") not in CALL_ITEMS):
                    continue
                place = f"{path}[{number}].{key}"
                first = self._ids.setdefault((key, value), place)
                if first != place:
                    self.report.add(rule, place, "a unique id", brief(value), first=first)

    def _on_retrieval(self, exchange: Exchange, path: str) -> None:
        match = re.search(r"/responses/([^/?]+)(?:\?(.*))?$", exchange.path)
        original = self._answers.get(match.group(1)) if match else None
        if match is None or original is None:
            return
        if exchange.events is not None:
            after = re.search(r"starting_after=(\d{1,18})", match.group(2) or "")
            self._check_replay(original, exchange, int(after.group(1)) if after else -1, path)
        elif exchange.body is not None and original.whole is not None:
            self._check_stored(original.whole, exchange.body, path)

    def _check_stored(self, answer: Mapping[str, Any], stored: Mapping[str, Any], path: str) -> None:
        if answer.get("status") not in _ENDED or stored.get("status") not in _ENDED:
            return
        for difference in compare_responses(answer, stored, same_answer=True, ignore=("billing",)):
            place = f"{path}.answer{difference.path[1:]}"
            self.report.add(rules.CV106, place, difference.expected, difference.actual)

    def _check_replay(self, original: Exchange, replay: Exchange, after: int, path: str) -> None:
        if original.events is None:
            return
        tail = [event for event in original.json_events if _number(event) > after]
        events, path = replay.json_events, f"{path}.events"
        if len(tail) != len(events):
            self.report.add(rules.CV107, path, f"{len(tail)} events", f"{len(events)} events")
        for number, (left, right) in enumerate(zip(tail, events, strict=False)):
            difference = next(differences(left, right, ignore=_OF_ONE_SENDING), None)
            if difference is not None:
                place = f"{path}[{number}]{difference.path[1:]}"
                self.report.add(rules.CV107, place, brief(difference.left), brief(difference.right))
                return

    def _check_messages(self, messages: object, path: str) -> None:
        calls: set[str] = set()
        for number, message in enumerate(messages if isinstance(messages, list) else ()):
            if not isinstance(message, dict):
                continue
            calls |= _tool_call_ids(message.get("tool_calls"))
            call_id = message.get("tool_call_id", ABSENT)
            if message.get("role") == "tool" and str(call_id) not in calls:
                place = f"{path}[{number}].tool_call_id"
                self.report.add(rules.CV103, place, "the id of a call", brief(call_id))


def _is_response_path(path: str) -> bool:
    return path.split("?")[0].rstrip("/").endswith("/responses")


def _number(event: Mapping[str, Any]) -> int:
    number = event.get("sequence_number")
    return number if isinstance(number, int) else -1


def _tool_call_ids(calls: object) -> set[str]:
    """The ids of the tool calls of a chat message."""
    values = calls if isinstance(calls, list) else []
    return {call["id"] for call in values if isinstance(call, dict) and isinstance(call.get("id"), str)}


def _call_ids(items: object) -> set[str]:
    """The call ids of output items."""
    return {
        item["call_id"]
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, dict) and item.get("type") in CALL_ITEMS and isinstance(item.get("call_id"), str)
    }
