"""Draws turns of an assistant: what a family's model may say and call, in the shapes that clients see."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from vllm_harness._scripted.meaning import Meaning, ToolCall

Message = dict[str, Any]
ID = "call00000"
"""The id of every call; Mistral's templates accept only ids with nine letters and digits."""
USER: Message = {"role": "user", "content": "What is the weather?"}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Looks up the weather.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
_NAMES = ("get_weather", "f", "search_web2")
_KEYS = ("city", "days", "a", "z_last", "Options", "note", "from_date", "count")
_WORDS = (
    "Paris", "the sky", "“Größe”", "日本", "🙂", "it's", '"quoted"', "a & b", "x < y > z", "<b>bold</b>",
    "{brace}", "[list]", "{{ twice }}", "50%", "back\\slash", "https://a.example/?b=c", "key: value", "None",
    "null", "true", "1.0", "\n", "\n\n", "\t", "#", "`code`", "$x", "é\u0301",
)  # fmt: skip
_NUMBERS = (0, -7, 12345678901, 1.5, -0.25, 1e20, 3.0)
SHAPES: dict[str, tuple[bool, bool, int]] = {
    "text": (False, True, 0),
    "reasoning, text": (True, True, 0),
    "call": (False, False, 1),
    "reasoning, call": (True, False, 1),
    "text, call": (False, True, 1),
    "reasoning, text, call": (True, True, 1),
    "calls": (False, False, 3),
    "reasoning, text, calls": (True, True, 2),
}
"""Whether a turn of each shape has reasoning and a text, and its number of calls."""


@dataclass(frozen=True)
class DrawnTurn:
    """A turn of an assistant, drawn in one of the shapes."""

    shape: str
    meaning: Meaning


def plain(shape: str) -> DrawnTurn:
    """The plainest turn of a shape."""
    reasoned, worded, calls = SHAPES[shape]
    called = tuple(ToolCall("get_weather", {"city": "Paris", "days": index}) for index in range(calls))
    meaning = Meaning.of(
        "Sunny." if worded else None, reasoning="I think." if reasoned else None, calls=called
    )
    return DrawnTurn(shape, meaning)


def drawn(seed: str, shapes: tuple[str, ...]) -> Iterator[DrawnTurn]:
    """Draws turns without end, the shapes one after another; the same seed draws the same turns."""
    chance = random.Random(seed)
    while True:
        for shape in shapes:
            reasoned, worded, calls = SHAPES[shape]
            yield DrawnTurn(
                shape,
                Meaning.of(
                    _trimmed(chance) if worded else None,
                    reasoning=_trimmed(chance) if reasoned else None,
                    calls=tuple(_call(chance) for _ in range(calls)),
                ),
            )


def _call(chance: random.Random) -> ToolCall:
    keys = chance.sample(_KEYS, chance.choice((0, 1, 1, 2, 2, 3)))
    return ToolCall(chance.choice(_NAMES), {key: _value(chance, depth=2) for key in keys})


def _value(chance: random.Random, depth: int) -> Any:
    kinds: list[Callable[[], Any]] = [
        lambda: _text(chance),
        lambda: _text(chance),
        lambda: chance.choice(("", " ", "word")),
        lambda: chance.choice(_NUMBERS),
        lambda: chance.choice((True, False)),
        lambda: None,
    ]
    if depth:
        kinds += [
            lambda: [_value(chance, depth - 1) for _ in range(chance.randint(0, 3))],
            lambda: {key: _value(chance, depth - 1) for key in chance.sample(_KEYS, chance.randint(0, 2))},
        ]
    return chance.choice(kinds)()


def _text(chance: random.Random) -> str:
    return chance.choice(("", " ")).join(chance.choices(_WORDS, k=chance.randint(1, 4)))


def _trimmed(chance: random.Random) -> str:
    """A text without blanks around it: templates strip them, so they cannot say what a model writes there."""
    return _text(chance).strip() or "Yes."


def messages_of(meaning: Meaning) -> list[Message]:
    """A conversation that ends with the turn, with the keys that vLLM gives the messages."""
    message: Message = {"role": "assistant", "content": meaning.text}
    if meaning.calls:
        message["tool_calls"] = [
            {"id": ID, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in meaning.calls
        ]
    if meaning.reasoning:
        message |= {"reasoning": meaning.reasoning, "reasoning_content": meaning.reasoning}
    return [USER, message]


def what_follows(meaning: Meaning) -> list[Message]:
    """The messages after a turn: the results of its calls, or the user's answer."""
    if not meaning.calls:
        return [{"role": "user", "content": "Thank you."}]
    return [
        {"role": "tool", "tool_call_id": ID, "name": call.name, "content": "sunny"} for call in meaning.calls
    ]
