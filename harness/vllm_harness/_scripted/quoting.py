"""Answers that quote what a rule's patterns matched: `${city}` is the text of the group `(?P<city>...)`.

Only the server knows that text, once a request arrives, and the server has no dialects. So the harness
renders the answer with marks in place of the groups, and learns from further renderings how the dialect
writes, at the position of each group, each character that is special in some format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from vllm_harness._scripted.dialects import DialectError
from vllm_harness._scripted.meaning import Meaning, Part, Raw, Reasoning, Text, ToolCall

QUOTE = re.compile(r"\$(\$?)\{(\w+)\}")
"""`${name}` quotes a group; `$${name}` stands for the literal string `${name}`."""
_OPEN, _CLOSE = "\ue000", "\ue001"
_MARK = re.compile(f"{_OPEN}([0-9]+):([^{_CLOSE}]*){_CLOSE}", re.DOTALL)
_SPECIAL = tuple(dict.fromkeys([*map(chr, range(32)), *"\"'\\`<>&{}[]()|/:,=#%$@*\x7f", "é", "語", "😀"]))


@dataclass(frozen=True)
class Quoting:
    """An answer whose texts quote groups of the rule's patterns with `${name}`."""

    answer: Meaning | Raw


def groups_in(answer: Meaning | Raw) -> list[str]:
    """The names of the groups that an answer quotes."""
    groups: list[str] = []

    def note(text: str) -> str:
        groups.extend(match[2] for match in QUOTE.finditer(text) if not match[1])
        return text

    _with_texts(answer, note)
    return list(dict.fromkeys(groups))


def unquoted(answer: Meaning | Raw) -> Meaning | Raw:
    """An answer without quotes, as the model generates it: `$${name}` becomes `${name}`."""
    return _with_texts(answer, lambda text: QUOTE.sub(lambda match: f"${{{match[2]}}}", text))


def sample(quoting: Quoting, value: str = "x") -> Meaning | Raw:
    """The answer with the same text in place of each group."""
    return _with_texts(
        quoting.answer,
        lambda text: QUOTE.sub(lambda match: f"${{{match[2]}}}" if match[1] else value, text),
    )


def pieces(
    quoting: Quoting, render: Callable[[Meaning | Raw], str], markers: tuple[str, ...]
) -> list[str | dict[str, Any]]:
    """Renders an answer as pieces into which a server can insert each group's text.

    Args:
        quoting: the answer.
        render: renders an answer as raw text; raises DialectError if the format cannot express it.
        markers: strings that a quoted text must not contain.

    Returns:
        Strings, and between them a mapping for each group: its name (`group`), the `markers`, and
        `characters`, which maps each character that is written differently at this position to how it is
        written, or to None if the format cannot contain it at this position.

    Raises:
        DialectError: the format cannot express the answer, whatever the groups contain.
    """
    names, texts, plain = _rendered(quoting, render, "x")
    as_written: list[dict[str, str | None]] = [{} for _ in plain]
    for char in _SPECIAL:
        written = _written(quoting, render, char, texts)
        for place, characters in enumerate(as_written):
            if written is None or written[place] != char:
                characters[char] = None if written is None else written[place]
    parts: list[str | dict[str, Any]] = [texts[0]]
    for name, characters, text in zip(names, as_written, texts[1:], strict=True):
        parts += [{"group": name, "markers": list(markers), "characters": characters}, text]
    return parts


def _written(
    quoting: Quoting, render: Callable[[Meaning | Raw], str], char: str, texts: list[str]
) -> list[str] | None:
    """How the dialect writes a character in place of each group; None if it cannot without other changes."""
    try:
        _, around, written = _rendered(quoting, render, char)
    except DialectError:
        return None
    return written if around == texts else None


def _rendered(
    quoting: Quoting, render: Callable[[Meaning | Raw], str], value: str
) -> tuple[list[str], list[str], list[str]]:
    """The groups in the raw text's order, the strings around them, and how `value` is written in each."""
    names: list[str] = []

    def mark(match: re.Match[str]) -> str:
        if match[1]:
            return f"${{{match[2]}}}"
        names.append(match[2])
        return f"{_OPEN}{len(names) - 1}:{value}{_CLOSE}"

    marked = _with_texts(quoting.answer, lambda text: QUOTE.sub(mark, text))
    parts = _MARK.split(render(marked))
    return [names[int(number)] for number in parts[1::3]], parts[0::3], parts[2::3]


def _with_texts(answer: Meaning | Raw, change: Callable[[str], str]) -> Meaning | Raw:
    """The answer with `change` applied to each of its strings."""
    if isinstance(answer, Raw):
        return Raw(change(answer.text))
    return Meaning(tuple(_parts(answer, change)))


def _parts(meaning: Meaning, change: Callable[[str], str]) -> Iterator[Part]:
    for part in meaning.parts:
        match part:
            case Reasoning(text):
                yield Reasoning(change(text))
            case Text(text):
                yield Text(change(text))
            case ToolCall(name, arguments):
                yield ToolCall(name, _value(arguments, change))


def _value(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case dict():
            return {key: _value(inner, change) for key, inner in value.items()}
        case list():
            return [_value(inner, change) for inner in value]
    return value
