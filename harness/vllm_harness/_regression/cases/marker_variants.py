"""Texts, strings and reasoning that partly resemble a family's format but are plain content.

No text contains a whole marker: formats cannot quote a marker, so a parser must read it as a marker.
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

FILE = Path(__file__).with_name("marker_variants.yaml")
_PLACEHOLDER = re.compile(r"\$\w+")
_TAG = re.compile(r"<[^<>]+>?")


class CallFragment(StrictModel):
    """A text that partly looks like a call."""

    name: str
    text: str


@cache
def load_fragments(path: Path = FILE) -> tuple[CallFragment, ...]:
    """Reads marker_variants.yaml. Raises pydantic's ValidationError if it has an invalid key or value."""
    return TypeAdapter(tuple[CallFragment, ...]).validate_python(yaml.safe_load(path.read_text()))


class MarkerVariant(NamedTuple):
    """A meaning that contains something that resembles a family's format.

    Attributes:
        essential: whether slow engines also run the variant.
        spelled: whether the variant also runs with its markers encoded as ordinary tokens.
    """

    name: str
    meaning: Meaning
    essential: bool = True
    spelled: bool = False


def marker_variants(family: Family) -> Iterator[MarkerVariant]:
    """Yields the variants for a family's parsers, whether or not the family's format can express them."""
    for variant in _variants(family):
        meaning = variant.meaning
        if (family.reasoning_parser or not meaning.reasoning) and (family.tool_parser or not meaning.calls):
            yield variant


def _variants(family: Family) -> Iterator[MarkerVariant]:
    beginnings = marker_beginnings(family)
    for marker, prefixes in beginnings.items():
        yield from _within(f"beginnings of {marker}", f"Write {' '.join(prefixes)} here.")
        yield _call(f"string that ends like {marker}", f"Write {prefixes[-1]}")
    yield from _ends(family, beginnings)
    for fragment in load_fragments():
        yield from _within(fragment.name, fragment.text)


def marker_beginnings(family: Family) -> dict[str, tuple[str, ...]]:
    """Maps each marker for calls and reasoning to its proper prefixes that contain no whole marker."""
    whole = _whole(family)
    beginnings: dict[str, tuple[str, ...]] = {}
    for marker in _markers(family):
        every = (marker[:length] for length in range(1, len(marker)))
        prefixes = tuple(prefix for prefix in every if not any(text in prefix for text in whole))
        if prefixes and prefixes not in beginnings.values():
            beginnings[marker] = prefixes
    return beginnings


def _ends(family: Family, beginnings: dict[str, tuple[str, ...]]) -> Iterator[MarkerVariant]:
    """Yields texts and reasoning that end with a prefix of a marker."""
    longest = {prefixes[-1] for prefixes in beginnings.values()}
    for text in dict.fromkeys(prefix for prefixes in beginnings.values() for prefix in prefixes):
        yield MarkerVariant(f"text that ends with {text}", Meaning.of(f"Write {text}"), text in longest)
    first = next(iter(beginnings.values()), ())
    for text in dict.fromkeys((*first[:1], *first[-1:])):
        before = Meaning.of(f"Write {text}", calls=(ToolCall("get_weather", {"city": "Paris", "days": 3}),))
        yield MarkerVariant(f"text that ends with {text} before a call", before, spelled=True)
    close = family.form.reasoning.close.strip() if family.form and family.form.reasoning else ""
    for text in beginnings.get(close, ()):
        yield MarkerVariant(
            f"reasoning that ends with {text}",
            Meaning.of("Done.", reasoning=f"Write {text}"),
            text in longest,
        )


def _within(name: str, text: str) -> Iterator[MarkerVariant]:
    """Yields variants with a text as the whole answer, as reasoning, and in a string argument."""
    yield MarkerVariant(f"text with {name}", Meaning.of(text))
    yield MarkerVariant(f"reasoning with {name}", Meaning.of("Done.", reasoning=text), essential=False)
    yield _call(f"string with {name}", text)


def _call(name: str, string: str) -> MarkerVariant:
    return MarkerVariant(name, Meaning.of(calls=(ToolCall("f", {"s": string}),)), essential=False)


def _markers(family: Family) -> tuple[str, ...]:
    """The markers around a family's calls, the parts of calls, and the reasoning."""
    form = family.form
    if form is None:
        return ()
    templates = (form.calls.call, getattr(form.calls.arguments, "string", "")) if family.tool_parser else ()
    fixed = [text for template in templates for text in _PLACEHOLDER.split(template)]
    tags = [tag.rstrip() for text in fixed for tag in _TAG.findall(text)]
    reasoning = form.reasoning if family.reasoning_parser else None
    around = (reasoning.open.strip(), reasoning.close.strip(), *reasoning.tokens) if reasoning else ()
    return tuple(dict.fromkeys(filter(None, (*markers(family), *tags, *around))))


def _whole(family: Family) -> tuple[str, ...]:
    """The strings that no text may contain: the format's markers and the special tokens."""
    form = family.form
    if form is None:
        return ()
    tokens = (token.text for token in (*tokens_of(form), *family.tokens))
    return tuple(dict.fromkeys(filter(None, (*tokens, *form.markers, *markers(family)))))
