"""Folds a Responses stream into the response it describes, with the texts that its deltas add up to.

The texts repeated in done events and in the terminal event are not used, so that they can be compared.
"""

from __future__ import annotations

from typing import Any

from vllm_harness._protocol.core.events import AnyEvent, Json, as_json
from vllm_harness._protocol.responses import schema

_COMMANDS = {
    f"{channel.prefix}.added": channel for channel in schema.CHANNELS if channel.index_key == "command_index"
}
_DELTAS = {f"{channel.prefix}.delta": channel for channel in schema.CHANNELS}
_PARTS = {f"{kind.prefix}.added": kind for kind in schema.PART_KINDS}


class _AccumulatedItem:
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
        channel = schema.CHANNEL_OF_ITEM.get(str(item.get("type")))
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
        terminal: the response of the terminal event; None before that event.
    """

    def __init__(self) -> None:
        self.terminal: Json | None = None
        self._head: Json = {}
        self._items: dict[int, _AccumulatedItem] = {}

    def feed(self, event: AnyEvent) -> None:
        """Adds the next event; ignores a malformed event, which the validator reports."""
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
            self._items[index] = _AccumulatedItem(item)
            return
        open_item = self._items.setdefault(index, _AccumulatedItem({}))
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
        """The response so far: the latest head, with the output of the items."""
        return {**self._head, "output": self.output}

    body = response

    @property
    def whole(self) -> Json | None:
        """The response of the terminal event; None before that event."""
        return self.terminal

    @property
    def output(self) -> list[Json]:
        """The output items, with the texts that the deltas add up to."""
        return [self._value(index) for index in sorted(self._items)]

    def _value(self, index: int) -> Json:
        """An item; a list of MCP tools that was never closed is taken from the terminal event."""
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

    def _on_part(self, item: _AccumulatedItem, kind: schema.PartKind, event: Json) -> None:
        number, part = event.get(kind.index_key), event.get("part")
        if isinstance(number, int) and isinstance(part, dict):
            item.parts[kind.index_key][number] = dict(part)


def _put(value: Json, path: tuple[str, ...], leaf: object) -> None:
    *parents, last = path
    for key in parents:
        inner = value.get(key)
        value[key] = dict(inner) if isinstance(inner, dict) else {}
        value = value[key]
    value[last] = leaf
