"""Answers that quote what a rule's patterns matched: `${city}` is the text of the group `(?P<city>...)`.

The text is known only when a request comes, in the server, which knows no dialect. So the harness renders the
answer with marks in the places of the groups, and learns from further renderings how the dialect writes each
character that has a meaning in some format, in each place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from vllm_harness._scripted.dialects import DialectError
from vllm_harness._scripted.meaning import Meaning, Part, Raw, Reasoning, Text, ToolCall

QUOTE = re.compile(r"\$(\$?)\{(\w+)\}")
"""`${name}` quotes a group; `$${name}` is the text `${name}`."""
_OPEN, _CLOSE = "\ue000", "\ue001"
_MARK = re.compile(f"{_OPEN}([0-9]+):([^{_CLOSE}]*){_CLOSE}", re.DOTALL)
_SPECIAL = tuple(dict.fromkeys([*map(chr, range(32)), *"\"'\\`<>&{}[]()|/:,=#%$@*\x7f", "é", "語", "😀"]))


@dataclass(frozen=True)
class Quoting:
    """An answer whose texts quote groups of the rule's patterns, as `${name}`."""

    say: Meaning | Raw


def groups_in(say: Meaning | Raw) -> list[str]:
    """The groups that an answer quotes."""
    found: list[str] = []
    _each_text(say, lambda text: _noted(text, found))
    return list(dict.fromkeys(found))


def unquoted(say: Meaning | Raw) -> Meaning | Raw:
    """An answer that quotes nothing, as the model says it: `$${name}` is `${name}`."""
    return _each_text(say, lambda text: QUOTE.sub(lambda match: f"${{{match[2]}}}", text))


def sample(quoting: Quoting, value: str = "x") -> Meaning | Raw:
    """The answer with the same text for each group."""
    return _each_text(
        quoting.say,
        lambda text: QUOTE.sub(lambda match: f"${{{match[2]}}}" if match[1] else value, text),
    )


def pieces(
    quoting: Quoting, render: Callable[[Meaning | Raw], str], markers: tuple[str, ...]
) -> list[str | dict[str, Any]]:
    """The raw text of an answer, with what a server needs to write a group in its place.

    Args:
        quoting: the answer.
        render: gives the raw text of an answer; DialectError where the format cannot express it.
        markers: what no quoted text may hold.

    Returns:
        Texts, and between them places of groups: `group`, its `markers`, and `characters`: what is written
        for a character that is not written as it is; None where the format cannot hold it there.

    Raises:
        DialectError: the answer cannot be expressed, whatever the groups hold.
    """
    names, texts, plain = _rendered(quoting, render, "x")
    as_written: list[dict[str, str | None]] = [{} for _ in plain]
    for char in _SPECIAL:
        written = _written(quoting, render, char, texts)
        for place, of in enumerate(as_written):
            if written is None or written[place] != char:
                of[char] = None if written is None else written[place]
    found: list[str | dict[str, Any]] = [texts[0]]
    for name, characters, text in zip(names, as_written, texts[1:], strict=True):
        found += [{"group": name, "markers": list(markers), "characters": characters}, text]
    return found


def _written(
    quoting: Quoting, render: Callable[[Meaning | Raw], str], char: str, texts: list[str]
) -> list[str] | None:
    """How a character is written in each place; None where it changes more than that, or is refused."""
    try:
        _, around, written = _rendered(quoting, render, char)
    except DialectError:
        return None
    return written if around == texts else None


def _rendered(
    quoting: Quoting, render: Callable[[Meaning | Raw], str], value: str
) -> tuple[list[str], list[str], list[str]]:
    """The groups in the order of their places, the texts around them, and what each place holds."""
    names: list[str] = []

    def mark(match: re.Match[str]) -> str:
        if match[1]:
            return f"${{{match[2]}}}"
        names.append(match[2])
        return f"{_OPEN}{len(names) - 1}:{value}{_CLOSE}"

    marked = _each_text(quoting.say, lambda text: QUOTE.sub(mark, text))
    parts = _MARK.split(render(marked))
    return [names[int(number)] for number in parts[1::3]], parts[0::3], parts[2::3]


def _noted(text: str, found: list[str]) -> str:
    found += [match[2] for match in QUOTE.finditer(text) if not match[1]]
    return text


def _each_text(say: Meaning | Raw, change: Callable[[str], str]) -> Meaning | Raw:
    if isinstance(say, Raw):
        return Raw(change(say.text))
    return Meaning(tuple(_parts(say, change)))


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
