"""The checks of a Messages stream.

A stream is message_start, then the start, the deltas and the stop of each content block, then message_delta
with the stop_reason, then message_stop. A ping may come anywhere before message_stop.

Sources: https://docs.anthropic.com/en/docs/build-with-claude/streaming, the anthropic SDK's types.
"""

from __future__ import annotations

from vllm_harness._protocol.core.events import Json
from vllm_harness._protocol.core.fields import check_fields, is_json_object
from vllm_harness._protocol.core.findings import ABSENT, brief
from vllm_harness._protocol.core.report import Report
from vllm_harness._protocol.core.rules import SE110
from vllm_harness._protocol.core.types import LIST, STR, Fields
from vllm_harness._protocol.messages import schema
from vllm_harness._protocol.messages import stream_rules as rules
from vllm_harness._protocol.messages.object_rules import MB108
from vllm_harness._protocol.messages.objects import (
    check_block,
    check_error,
    check_kind,
    check_stop,
    check_usage,
)

_START_FIELDS: Fields = (("id", STR), ("type", STR), ("role", STR), ("content", LIST), ("model", STR))
_NODE_COST = 256


class _StreamedBlock:
    """A content block, built from its deltas."""

    __slots__ = ("index", "kind", "pieces", "signed")

    def __init__(self, index: int, kind: str) -> None:
        self.index = index
        self.kind = kind
        self.pieces: list[str] = []
        self.signed = False


class MessagesValidator:
    """Checks one stream of the Messages API.

    Args:
        report: collects the findings.
        max_held: the maximum number of characters of tool input to keep; the rest is not checked.
    """

    def __init__(self, report: Report, *, max_held: int) -> None:
        self._report = report
        self._left = max_held
        self._usage: Json | None = None
        self._begun = self._stopped = self._failed = False
        self._reason: str | None = None
        self._open: _StreamedBlock | None = None
        self._next = 0
        self._called = False
        self._ids: set[str] = set()
        self._truncated_input: int | None = None
        self._empty = True

    def feed(self, event: Json) -> None:
        """Checks the next event."""
        report, kind = self._report, event.get("type")
        self._empty = False
        if not isinstance(kind, str):
            report.add(rules.MS112, "$.type", "string", brief(event.get("type", ABSENT)))
            return
        if self._stopped:
            report.add(rules.MS104, "$.type", "nothing", kind, once="end")
            return
        if kind == "error":
            self._failed = True
            report.add(rules.MS114, "$.error", actual=event.get("error"))
            check_error(report, event)
            return
        if kind not in schema.EVENT_FIELDS:
            report.add(rules.MS111, "$.type", once=kind, kind=kind)
            return
        if not self._begun and kind not in ("message_start", "ping"):
            report.add(rules.MS101, "$.type", "message_start", kind)
            self._begun = True
        check_fields(report, event, schema.EVENT_FIELDS[kind], "$", rules.MS109, rules.MS110)
        if all(type(event.get(key, ABSENT)) in types for key, types in schema.EVENT_FIELDS[kind]):
            getattr(self, f"_on_{kind}")(event)

    def close(self) -> None:
        """Checks the end of the stream."""
        report = self._report
        if self._empty:
            report.add(rules.MS113, expected="message_start", actual="nothing")
        if self._empty or self._failed or self._stopped:
            return
        report.add(rules.MS103, "$", "message_stop", "the end")

    def _on_ping(self, event: Json) -> None:
        pass

    def _on_message_start(self, event: Json) -> None:
        report, message = self._report, event["message"]
        if self._begun:
            report.add(rules.MS102, "$", "nothing", "message_start")
            return
        self._begun = True
        check_fields(report, message, _START_FIELDS, "$.message", rules.MS109, rules.MS110)
        check_kind(report, message, "$.message")
        check_usage(report, message.get("usage", ABSENT), "$.message.usage")
        self._usage = message["usage"] if isinstance(message.get("usage"), dict) else None
        for key in ("content", "stop_reason", "stop_sequence"):
            if message.get(key):
                report.add(rules.MS108, f"$.message.{key}", "empty or null", message[key], key=key)

    def _on_content_block_start(self, event: Json) -> None:
        report, index, block = self._report, event["index"], event["content_block"]
        self._check_not_ended("content_block_start")
        if self._open is not None:
            report.add(rules.MS203, "$.index", "content_block_stop first", index, index=self._open.index)
        if index != self._next:
            report.add(rules.MS201, "$.index", str(self._next), index)
        check_block(report, block, "$.content_block", begins=True)
        kind = str(block.get("type"))
        known = schema.BLOCKS.get(kind)
        if known is not None and known.growing and block.get(known.growing):
            place = f"$.content_block.{known.growing}"
            report.add(rules.MS205, place, "empty", block[known.growing], kind=kind)
        if kind in schema.CALLS:
            self._called = self._called or kind == "tool_use"
            self._check_id(block.get("id"))
        self._next = index + 1
        self._open = _StreamedBlock(index, kind)

    def _on_content_block_delta(self, event: Json) -> None:
        report, delta = self._report, event["delta"]
        block = self._opened(event)
        if block is None:
            return
        kind, known = delta.get("type"), schema.BLOCKS.get(block.kind)
        if known is not None and kind not in known.deltas:
            wanted = " or ".join(known.deltas) or "no delta"
            report.add(rules.MS206, "$.delta.type", wanted, kind, kind=block.kind)
            return
        key = schema.PIECES.get(str(kind))
        if key is None:
            return
        check_fields(report, delta, ((key, STR),), "$.delta", rules.MS109, rules.MS110)
        if kind == "signature_delta":
            block.signed = True
        elif block.signed:
            report.add(rules.MS209, "$.delta", "content_block_stop", kind)
        piece = delta.get(key)
        if kind == "input_json_delta" and isinstance(piece, str):
            self._left -= len(piece)
            if self._left >= 0:
                block.pieces.append(piece)
            else:
                report.add(SE110, once="limit")

    def _on_content_block_stop(self, event: Json) -> None:
        block = self._opened(event)
        if block is None:
            return
        self._open = None
        if block.kind == "thinking" and not block.signed:
            self._report.add(rules.MS210, "$", "signature_delta", "nothing")
        whole = "".join(block.pieces)
        if self._truncated_input is not None:
            self._bad_input(self._truncated_input)
            self._truncated_input = None
        if block.kind in schema.CALLS and whole and self._left >= 0 and not is_json_object(whole):
            self._truncated_input = block.index

    def _on_message_delta(self, event: Json) -> None:
        report, delta = self._report, event["delta"]
        if self._open is not None:
            report.add(rules.MS204, "$", "content_block_stop", "nothing", index=self._open.index)
            self._open = None
        for key in ("stop_reason", "stop_sequence"):
            if key not in delta:
                report.add(rules.MS109, f"$.delta.{key}", "the field", "nothing", key=key)
        reason = delta.get("stop_reason")
        if reason is not None and self._reason is not None:
            report.add(rules.MS106, "$.delta.stop_reason", "nothing", reason)
        if isinstance(reason, str):
            self._reason = reason
        check_stop(report, delta, self._called, "$.delta")
        if self._truncated_input is not None and reason not in schema.TRUNCATING_REASONS:
            self._bad_input(self._truncated_input)
        self._truncated_input = None
        self._check_cumulative(event["usage"])

    def _on_message_stop(self, event: Json) -> None:
        self._stopped = True
        if self._open is not None:
            self._report.add(rules.MS204, "$", "content_block_stop", "message_stop", index=self._open.index)
        if self._reason is None:
            self._report.add(rules.MS105, "$", "message_delta", "message_stop")

    def _opened(self, event: Json) -> _StreamedBlock | None:
        index, block = event["index"], self._open
        if block is None or block.index != index:
            wanted = "an open block" if block is None else str(block.index)
            self._report.add(rules.MS202, "$.index", wanted, index, event=event["type"])
            return None
        return block

    def _check_id(self, identifier: object) -> None:
        self._left -= _NODE_COST
        if not isinstance(identifier, str) or self._left < 0:
            return
        if identifier in self._ids:
            self._report.add(MB108, "$.content_block.id", "a unique id", identifier)
        self._ids.add(identifier)

    def _check_not_ended(self, kind: str) -> None:
        if self._reason is not None:
            self._report.add(rules.MS107, "$.type", "message_stop", kind, once="end")

    def _bad_input(self, index: int) -> None:
        self._report.add(rules.MS211, "$", "a JSON object", "other text", index=index)

    def _check_cumulative(self, usage: Json) -> None:
        report, before = self._report, self._usage
        check_usage(report, usage, "$.usage", of_delta=True)
        self._usage = {**(before or {}), **usage}
        if before is None:
            return
        first, last = before.get("output_tokens"), usage.get("output_tokens")
        if type(first) is int and type(last) is int and last < first:
            report.add(rules.MS215, "$.usage.output_tokens", f"{first} or more", str(last))
        if "input_tokens" in usage and _input_of(usage) != _input_of(before):
            report.add(rules.MS216, "$.usage.input_tokens", str(_input_of(before)), str(_input_of(usage)))


def _input_of(usage: Json) -> int:
    return sum(count for key in schema.INPUT_COUNTS if type(count := usage.get(key)) is int)
