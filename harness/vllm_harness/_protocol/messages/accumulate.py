"""Folds a Messages stream into the message it describes."""

from __future__ import annotations

import json

from vllm_harness._protocol.core.events import AnyEvent, Json, as_json
from vllm_harness._protocol.messages import schema


class MessageAccumulator:
    """Folds a Messages stream (Anthropic) into a message, event by event."""

    def __init__(self) -> None:
        self._head: Json = {}
        self._blocks: dict[int, Json] = {}
        self._inputs: dict[int, list[str]] = {}

    def feed(self, event: AnyEvent) -> None:
        """Adds the next event; ignores malformed parts, which the validator reports."""
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
        """The message so far."""
        return {**self._head, "content": [self._block(index) for index in sorted(self._blocks)]}

    body = whole = message

    def _on_delta(self, index: int, delta: Json) -> None:
        block, kind = self._blocks.setdefault(index, {}), str(delta.get("type"))
        key = schema.PIECES.get(kind)
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
