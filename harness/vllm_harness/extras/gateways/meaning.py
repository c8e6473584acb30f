"""What an answer means, the same for every API: text, reasoning, calls, why it ended, what it cost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vllm_harness.protocol.chat.objects import REASONING_KEYS
from vllm_harness.protocol.core.events import Api, Json, decode


@dataclass(frozen=True)
class Called:
    """A call: the function's name, and its arguments as the text that came."""

    name: str
    arguments: str

    @property
    def value(self) -> object:
        """The arguments as JSON; the text where they are none."""
        try:
            return decode(self.arguments)
        except (ValueError, RecursionError):
            return self.arguments


@dataclass(frozen=True)
class Meant:
    """What one choice of an answer means.

    Attributes:
        path: JSON path of the choice; `$` for APIs without choices.
        end: why it ended, in the words of its API.
    """

    path: str
    text: str
    reasoning: str
    calls: tuple[Called, ...]
    end: str


def meant_by(api: Api, body: Json) -> list[Meant]:
    """What an answer means, for each of its choices."""
    if api == "chat":
        return [_of_choice(choice) for choice in _objects(body.get("choices"))]
    return [_of_message(body) if api == "messages" else _of_response(body)]


def counted(api: Api, body: Json) -> dict[str, int] | None:
    """The tokens of the prompt and of the answer; None where the answer does not say."""
    usage = body.get("usage")
    if not isinstance(usage, dict):
        return None
    names = ("prompt_tokens", "completion_tokens") if api == "chat" else ("input_tokens", "output_tokens")
    return {name: usage[name] for name in names if isinstance(usage.get(name), int)}


def _of_choice(choice: Json) -> Meant:
    message = choice.get("message") if isinstance(choice.get("message"), dict) else {}
    assert isinstance(message, dict)
    calls = [each.get("function") or {} for each in _objects(message.get("tool_calls"))]
    return Meant(
        f"$.choices[{choice.get('index', 0)}]",
        _text(message.get("content")),
        next((str(message[key]) for key in REASONING_KEYS if message.get(key)), ""),
        tuple(Called(str(each.get("name") or ""), str(each.get("arguments") or "")) for each in calls),
        str(choice.get("finish_reason")),
    )


def _of_message(body: Json) -> Meant:
    blocks = list(_objects(body.get("content")))
    uses = [block for block in blocks if block.get("type") == "tool_use"]
    return Meant(
        "$",
        "".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text"),
        "".join(str(block.get("thinking") or "") for block in blocks if block.get("type") == "thinking"),
        tuple(Called(str(each.get("name") or ""), _written(each.get("input"))) for each in uses),
        str(body.get("stop_reason")),
    )


def _of_response(body: Json) -> Meant:
    items = list(_objects(body.get("output")))
    messages = [item for item in items if item.get("type") == "message"]
    said = [part for item in messages for part in _parts(item, "content")]
    reasoning = [item for item in items if item.get("type") == "reasoning"]
    thought = [part for item in reasoning for part in (*_parts(item, "content"), *_parts(item, "summary"))]
    calls = [item for item in items if item.get("type") == "function_call"]
    return Meant(
        "$",
        "".join(str(part.get("text") or "") for part in said),
        "".join(str(part.get("text") or "") for part in thought),
        tuple(Called(str(each.get("name") or ""), str(each.get("arguments") or "")) for each in calls),
        str(body.get("status")),
    )


def _parts(item: Json, key: str) -> Iterator[Json]:
    return _objects(item.get(key))


def _objects(value: Any) -> Iterator[Json]:
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in _objects(content))
    return str(content or "")


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
