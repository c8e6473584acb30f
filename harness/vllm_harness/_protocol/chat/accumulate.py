"""Folds a Chat Completions stream into the completion it describes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_harness._protocol.core.events import AnyEvent, Json, as_json


class _AccumulatedChoice:
    def __init__(self) -> None:
        self.texts: dict[str, list[str]] = {}
        self.fields: Json = {}
        self.calls: dict[int, Json] = {}
        self.finish: object = None
        self.stop: Json = {}  # a vLLM extension

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
        self._choices: dict[int, _AccumulatedChoice] = {}
        self.usage: Json | None = None

    def feed(self, chunk: AnyEvent) -> None:
        """Adds the next chunk; ignores malformed parts, which the validator reports."""
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
                state = self._choices.setdefault(choice["index"], _AccumulatedChoice())
                if isinstance(choice.get("delta"), dict):
                    state.add(choice["delta"])
                if choice.get("finish_reason") is not None:
                    state.finish = choice["finish_reason"]
                if choice.get("stop_reason") is not None:
                    state.stop = {"stop_reason": choice["stop_reason"]}

    @property
    def completion(self) -> Json:
        """The completion so far."""
        choices = [
            {"index": index, "message": choice.message(), "finish_reason": choice.finish, **choice.stop}
            for index, choice in sorted(self._choices.items())
        ]
        body = {**self._head, "object": "chat.completion", "choices": choices}
        return body if self.usage is None else {**body, "usage": self.usage}

    body = whole = completion
