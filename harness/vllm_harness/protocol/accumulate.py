"""Accumulators: fold a stream into the object it describes, from the deltas alone where there are deltas.

What the done events and the terminal event repeat is not taken from them, so that the two can be compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vllm_harness.protocol import schema
from vllm_harness.protocol.messages_objects import PIECES
from vllm_harness.protocol.stream import AnyEvent, as_json

Json = dict[str, Any]

_COMMANDS = {f"{one.prefix}.added": one for one in schema.CHANNELS if one.index_key == "command_index"}
_DELTAS = {f"{channel.prefix}.delta": channel for channel in schema.CHANNELS}
_PARTS = {f"{kind.prefix}.added": kind for kind in schema.PART_KINDS}
_ITEM_CHANNEL = {channel.item_type: channel for channel in schema.CHANNELS if not channel.part_type}


class _Item:
    def __init__(self, added: Json) -> None:
        self.fields = dict(added)
        self.closed = False
        self.parts: dict[str, dict[int, Json]] = {kind.index_key: {} for kind in schema.PART_KINDS}
        self.texts: dict[tuple[str, int], list[str]] = {}

    def add_text(self, channel: schema.Channel, event: Json) -> None:
        number = event.get(channel.index_key, 0)
        if isinstance(number, int) and isinstance(event.get("delta"), str):
            self.texts.setdefault((channel.prefix, number), []).append(event["delta"])

    def add_annotation(self, event: Json) -> None:
        number = event.get("content_index")
        part = self.parts["content_index"].get(number) if isinstance(number, int) else None
        if part is not None:
            before = part.get("annotations")
            part["annotations"] = [*(before if isinstance(before, list) else ()), event.get("annotation")]

    def value(self) -> Json:
        item = dict(self.fields)
        for kind in schema.PART_KINDS:
            parts = self.parts[kind.index_key]
            if parts:
                finished = item.get(kind.item_key)
                item[kind.item_key] = [
                    self._part(part, number, finished) for number, part in sorted(parts.items())
                ]
        channel = _ITEM_CHANNEL.get(str(item.get("type")))
        if channel is not None and self.texts:
            whole: Any = "".join(self.texts.get((channel.prefix, 0), ()))
            if channel.index_key:
                whole = ["".join(pieces) for (prefix, _), pieces in sorted(self.texts.items())]
            _put(item, channel.item_path, whole)
        return item

    def _part(self, added: Json, number: int, finished: object) -> Json:
        done = finished[number] if isinstance(finished, list) and 0 <= number < len(finished) else {}
        part = {**(done if isinstance(done, dict) else {}), **added}
        if isinstance(done, dict) and "logprobs" in done:
            part["logprobs"] = done["logprobs"]
        channel = schema.CHANNEL_OF_PART.get(str(part.get("type")))
        if channel is not None:
            part[channel.item_path[0]] = "".join(self.texts.get((channel.prefix, number), ()))
        return part


class ResponseAccumulator:
    """Folds a Responses stream into a response, event by event.

    Attributes:
        terminal: the response which the terminal event carried; None before it.
    """

    def __init__(self) -> None:
        self.terminal: Json | None = None
        self._head: Json = {}
        self._items: dict[int, _Item] = {}

    def feed(self, event: AnyEvent) -> None:
        """Takes the next event; what has no place is left aside (the validator reports it)."""
        value = as_json(event)
        kind = value.get("type") if value is not None else None
        if value is None or not isinstance(kind, str):
            return
        if kind in schema.HEAD or kind in schema.TERMINAL:
            self._on_response(value, terminal=kind in schema.TERMINAL)
            return
        index, item = value.get("output_index"), value.get("item")
        if not isinstance(index, int):
            return
        if kind == "response.output_item.added" and isinstance(item, dict):
            self._items[index] = _Item(item)
            return
        open_item = self._items.setdefault(index, _Item({}))
        if kind == "response.output_item.done" and isinstance(item, dict):
            open_item.fields = {**open_item.fields, **item}
            open_item.closed = True
        elif kind in _COMMANDS:
            open_item.add_text(_COMMANDS[kind], {**value, "delta": ""})
        elif kind in _DELTAS:
            open_item.add_text(_DELTAS[kind], value)
        elif kind in _PARTS:
            self._on_part(open_item, _PARTS[kind], value)
        elif kind == "response.output_text.annotation.added":
            open_item.add_annotation(value)

    @property
    def response(self) -> Json:
        """The response as far as the stream tells: envelope of the latest event, output from the items."""
        return {**self._head, "output": self.output}

    @property
    def output(self) -> list[Json]:
        """The output items, texts from their deltas."""
        return [self._value(index) for index in sorted(self._items)]

    @property
    def text(self) -> str:
        """The text of all messages."""
        return self._joined("message", "content", "output_text")

    @property
    def reasoning(self) -> str:
        """The text of all reasoning, raw where there is some, else the summaries."""
        return self._joined("reasoning", "content", "reasoning_text") or self._joined(
            "reasoning", "summary", "summary_text"
        )

    @property
    def tool_calls(self) -> list[Json]:
        """The function calls and custom tool calls."""
        return [item for item in self.output if item.get("type") in schema.CALLS]

    @property
    def usage(self) -> Json | None:
        """Token counts, once the stream has told them."""
        usage = self._head.get("usage")
        return usage if isinstance(usage, dict) else None

    def _value(self, index: int) -> Json:
        """An item; a list of MCP tools that was never closed comes from the terminal event."""
        item = self._items[index]
        whole = (self.terminal or {}).get("output")
        if item.closed or item.fields.get("type") != "mcp_list_tools" or not isinstance(whole, list):
            return item.value()
        backfilled = whole[index] if 0 <= index < len(whole) else None
        return backfilled if isinstance(backfilled, dict) else item.value()

    def _on_response(self, event: Json, terminal: bool) -> None:
        response = event.get("response")
        if isinstance(response, dict):
            self._head = response
            if terminal:
                self.terminal = response

    def _on_part(self, item: _Item, kind: schema.PartKind, event: Json) -> None:
        number, part = event.get(kind.index_key), event.get("part")
        if isinstance(number, int) and isinstance(part, dict):
            item.parts[kind.index_key][number] = dict(part)

    def _joined(self, item_type: str, key: str, part_type: str) -> str:
        return "".join(
            str(part.get("text", ""))
            for item in self.output
            if item.get("type") == item_type and isinstance(item.get(key), list)
            for part in item[key]
            if isinstance(part, dict) and part.get("type") == part_type
        )


class _Choice:
    def __init__(self) -> None:
        self.texts: dict[str, list[str]] = {}
        self.fields: Json = {}
        self.calls: dict[int, Json] = {}
        self.finish: object = None
        self.stop: Json = {}  # vLLM's own

    def add(self, delta: Mapping[str, Any]) -> None:
        for key, value in delta.items():
            if key == "tool_calls":
                for call in value if isinstance(value, list) else ():
                    self._add_call(call)
            elif isinstance(value, str) and key != "role":
                self.texts.setdefault(key, []).append(value)
            elif value is not None or key not in self.fields:
                self.fields[key] = value

    def _add_call(self, delta: object) -> None:
        if not isinstance(delta, dict) or not isinstance(delta.get("index"), int):
            return
        call = self.calls.setdefault(delta["index"], {})
        for key in ("id", "type"):
            if delta.get(key) is not None:
                call[key] = delta[key]
        for body in ("function", "custom"):
            pieces = delta.get(body)
            if isinstance(pieces, dict):
                whole = call.setdefault(body, {})
                for key, piece in pieces.items():
                    if isinstance(piece, str):
                        whole[key] = whole.get(key, "") + piece

    def message(self) -> Json:
        message = {"role": "assistant", "content": None, **self.fields}
        message.update({key: "".join(pieces) for key, pieces in self.texts.items()})
        if self.calls:
            message["tool_calls"] = [self.calls[index] for index in sorted(self.calls)]
            message["content"] = message["content"] or None
        return message


class ChatAccumulator:
    """Folds a Chat Completions stream into a completion, chunk by chunk."""

    def __init__(self) -> None:
        self._head: Json = {}
        self._choices: dict[int, _Choice] = {}
        self.usage: Json | None = None

    def feed(self, chunk: AnyEvent) -> None:
        """Takes the next chunk; what has no place is left aside (the validator reports it)."""
        value = as_json(chunk)
        if value is None:
            return
        if not self._head.get("id"):
            self._head = {key: value[key] for key in value if key not in ("choices", "usage", "obfuscation")}
        if isinstance(value.get("usage"), dict):
            self.usage = value["usage"]
        choices = value.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and isinstance(choice.get("index"), int):
                state = self._choices.setdefault(choice["index"], _Choice())
                if isinstance(choice.get("delta"), dict):
                    state.add(choice["delta"])
                if choice.get("finish_reason") is not None:
                    state.finish = choice["finish_reason"]
                if choice.get("stop_reason") is not None:
                    state.stop = {"stop_reason": choice["stop_reason"]}

    @property
    def completion(self) -> Json:
        """The completion as far as the stream tells."""
        choices = [
            {"index": index, "message": choice.message(), "finish_reason": choice.finish, **choice.stop}
            for index, choice in sorted(self._choices.items())
        ]
        body = {**self._head, "object": "chat.completion", "choices": choices}
        return body if self.usage is None else {**body, "usage": self.usage}

    @property
    def text(self) -> str:
        """The content of the first choice."""
        return self._of_first("content")

    @property
    def reasoning(self) -> str:
        """The reasoning of the first choice."""
        return next((text for key in schema.REASONING_KEYS if (text := self._of_first(key))), "")

    @property
    def tool_calls(self) -> list[Json]:
        """The tool calls of the first choice."""
        first = self._choices.get(0)
        return [first.calls[index] for index in sorted(first.calls)] if first else []

    def _of_first(self, key: str) -> str:
        first = self._choices.get(0)
        return "".join(first.texts.get(key, ())) if first else ""


class MessageAccumulator:
    """Folds a Messages stream (Anthropic) into a message, event by event."""

    def __init__(self) -> None:
        self._head: Json = {}
        self._blocks: dict[int, Json] = {}
        self._inputs: dict[int, list[str]] = {}

    def feed(self, event: AnyEvent) -> None:
        """Takes the next event; what has no place is left aside (the validator reports it)."""
        value = as_json(event) or {}
        index, delta = value.get("index"), value.get("delta")
        match value.get("type"):
            case "message_start" if isinstance(value.get("message"), dict):
                self._head = dict(value["message"])
            case "content_block_start" if isinstance(index, int):
                block = value.get("content_block")
                self._blocks[index] = dict(block) if isinstance(block, dict) else {}
            case "content_block_delta" if isinstance(index, int) and isinstance(delta, dict):
                self._on_delta(index, delta)
            case "message_delta":
                before, usage = self._head.get("usage"), value.get("usage")
                counted = before if isinstance(before, dict) else {}
                self._head["usage"] = {**counted, **(usage if isinstance(usage, dict) else {})}
                self._head.update(delta if isinstance(delta, dict) else {})

    @property
    def message(self) -> Json:
        """The message as far as the stream tells."""
        return {**self._head, "content": [self._block(index) for index in sorted(self._blocks)]}

    @property
    def text(self) -> str:
        """The text of all text blocks."""
        return self._joined("text")

    @property
    def reasoning(self) -> str:
        """The text of all thinking blocks."""
        return self._joined("thinking")

    @property
    def tool_calls(self) -> list[Json]:
        """The tool_use blocks."""
        return [block for block in self.message["content"] if block.get("type") == "tool_use"]

    def _on_delta(self, index: int, delta: Json) -> None:
        block, kind = self._blocks.setdefault(index, {}), str(delta.get("type"))
        key = PIECES.get(kind)
        piece = delta.get(key) if key else None
        if not isinstance(piece, str):
            return
        if kind == "input_json_delta":
            self._inputs.setdefault(index, []).append(piece)
        elif isinstance(block.get(str(key), ""), str):
            block[str(key)] = block.get(str(key), "") + piece

    def _block(self, index: int) -> Json:
        whole = "".join(self._inputs.get(index, ()))
        if not whole:
            return self._blocks[index]
        try:
            return {**self._blocks[index], "input": json.loads(whole)}
        except (ValueError, RecursionError):
            return {**self._blocks[index], "input": whole}

    def _joined(self, kind: str) -> str:
        blocks = [block for block in self._blocks.values() if block.get("type") == kind]
        return "".join(str(block.get(kind, "")) for block in blocks)


def _put(value: Json, path: tuple[str, ...], leaf: object) -> None:
    *parents, last = path
    for key in parents:
        inner = value.get(key)
        value[key] = dict(inner) if isinstance(inner, dict) else {}
        value = value[key]
    value[last] = leaf
