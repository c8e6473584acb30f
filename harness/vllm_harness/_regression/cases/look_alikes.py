"""Texts, strings and thoughts that resemble a family's format in part, and mean just what they say.

A whole marker as text is no such case: no format can quote it, and its parser has to take it for a marker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml
from pydantic import TypeAdapter

from vllm_harness._files.strict import StrictModel
from vllm_harness._regression.cases.meanings import markers
from vllm_harness._scripted.families import Family
from vllm_harness._scripted.meaning import Meaning, ToolCall
from vllm_harness._scripted.synthetic import tokens_of

FILE = Path(__file__).with_name("look_alikes.yaml")
_PLACEHOLDER = re.compile(r"\$\w+")
_TAG = re.compile(r"<[^<>]+>?")


class MarkerVariant(StrictModel):
    """A text that has the shape of a call in part."""

    name: str
    text: str


@cache
def load_shapes(path: Path = FILE) -> tuple[MarkerVariant, ...]:
    """Reads the table; raises pydantic's ValidationError, naming the key, where it is malformed."""
    return TypeAdapter(tuple[MarkerVariant, ...]).validate_python(yaml.safe_load(path.read_text()))


class LookAlike(NamedTuple):
    """A meaning with something in it that resembles a family's format.

    Attributes:
        name: unique within its family.
        meaning: what has to come back.
        essential: whether an engine runs it that has no time for all.
        spelled: whether it is also run with its markers spelled.
    """

    name: str
    meaning: Meaning
    essential: bool = True
    spelled: bool = False


def look_alikes(family: Family) -> Iterator[LookAlike]:
    """The meanings that a family's parsers are for, whether or not its format can express them."""
    for alike in _look_alikes(family):
        meaning = alike.meaning
        if (family.reasoning_parser or not meaning.reasoning) and (family.tool_parser or not meaning.calls):
            yield alike


def _look_alikes(family: Family) -> Iterator[LookAlike]:
    beginnings = marker_beginnings(family)
    for marker, found in beginnings.items():
        yield from _within(f"beginnings of {marker}", f"Write {' '.join(found)} here.")
        yield _call(f"string that ends like {marker}", f"Write {found[-1]}")
    yield from _ends(family, beginnings)
    for shape in load_shapes():
        yield from _within(shape.name, shape.text)


def marker_beginnings(family: Family) -> dict[str, tuple[str, ...]]:
    """Each marker of a family's calls and thoughts, and what it begins with, of every length but its own."""
    whole = _whole(family)
    found: dict[str, tuple[str, ...]] = {}
    for marker in _markers(family):
        cut = (marker[:length] for length in range(1, len(marker)))
        beginnings = tuple(text for text in cut if not any(each in text for each in whole))
        if beginnings and beginnings not in found.values():
            found[marker] = beginnings
    return found


def _ends(family: Family, beginnings: dict[str, tuple[str, ...]]) -> Iterator[LookAlike]:
    """Parts of an answer that end like the beginning of a marker, of every length."""
    longest = {found[-1] for found in beginnings.values()}
    for text in dict.fromkeys(text for found in beginnings.values() for text in found):
        yield LookAlike(f"text that ends with {text}", Meaning.of(f"Write {text}"), text in longest)
    first = next(iter(beginnings.values()), ())
    for text in dict.fromkeys((*first[:1], *first[-1:])):
        before = Meaning.of(f"Write {text}", calls=(ToolCall("get_weather", {"city": "Paris", "days": 3}),))
        yield LookAlike(f"text that ends with {text} before a call", before, spelled=True)
    close = family.form.reasoning.close.strip() if family.form and family.form.reasoning else ""
    for text in beginnings.get(close, ()):
        yield LookAlike(
            f"reasoning that ends with {text}",
            Meaning.of("Done.", reasoning=f"Write {text}"),
            text in longest,
        )


def _within(name: str, text: str) -> Iterator[LookAlike]:
    """A text as the whole text, in reasoning and in a string."""
    yield LookAlike(f"text with {name}", Meaning.of(text))
    yield LookAlike(f"reasoning with {name}", Meaning.of("Done.", reasoning=text), essential=False)
    yield _call(f"string with {name}", text)


def _call(name: str, string: str) -> LookAlike:
    return LookAlike(name, Meaning.of(calls=(ToolCall("f", {"s": string}),)), essential=False)


def _markers(family: Family) -> tuple[str, ...]:
    """What begins and ends a family's calls, their parts, and its thoughts."""
    form = family.form
    if form is None:
        return ()
    templates = (form.calls.call, getattr(form.calls.arguments, "string", "")) if family.tool_parser else ()
    fixed = [text for template in templates for text in _PLACEHOLDER.split(template)]
    tags = [tag.rstrip() for text in fixed for tag in _TAG.findall(text)]
    thoughts = form.reasoning if family.reasoning_parser else None
    around = (thoughts.open.strip(), thoughts.close.strip(), *thoughts.tokens) if thoughts else ()
    return tuple(dict.fromkeys(filter(None, (*markers(family), *tags, *around))))


def _whole(family: Family) -> tuple[str, ...]:
    """What no text may hold: the format's own markers, and whatever is one token."""
    form = family.form
    if form is None:
        return ()
    tokens = (token.text for token in (*tokens_of(form), *family.tokens))
    return tuple(dict.fromkeys(filter(None, (*tokens, *form.markers, *markers(family)))))
