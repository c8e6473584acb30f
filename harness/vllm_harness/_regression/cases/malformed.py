"""Malformed texts, made by applying the changes in malformed.yaml to well-formed texts of a family."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml
from pydantic import Field

from vllm_harness._files.strict import StrictModel
from vllm_harness._regression.cases.meanings import NamedMeaning
from vllm_harness._scripted.dialects import Dialect, DialectError, find_dialect, render
from vllm_harness._scripted.families import Family

FILE = Path(__file__).with_name("malformed.yaml")
_REASONING_END = "{reasoning end}"


class TextChange(StrictModel):
    """A change that makes a text malformed: it replaces one match of a regular expression.

    `{reasoning end}` in the expression stands for the marker that closes the family's reasoning.

    Attributes:
        functions: names of functions that only the changed text calls.
        words: words that occur only in the changed text.
        values: values that an answer with calls must contain.
    """

    name: str
    find: re.Pattern[str]
    replacement: str = Field(alias="with")
    first: bool = False
    functions: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    def apply(self, text: str, reasoning_end: str = "") -> str:
        """Returns the changed text, or the same text if nothing matches."""
        if _REASONING_END in self.find.pattern and not reasoning_end:
            return text
        find = self.find.pattern.replace(_REASONING_END, re.escape(reasoning_end))
        matches = list(re.finditer(find, text))
        if not matches:
            return text
        match = matches[0 if self.first else -1]
        return text[: match.start()] + match.expand(self.replacement) + text[match.end() :]


class Malformed(StrictModel):
    """The content of malformed.yaml."""

    texts: tuple[NamedMeaning, ...]
    truncated: tuple[str, ...]
    changes: tuple[TextChange, ...]


@cache
def load_malformed(path: Path = FILE) -> Malformed:
    """Reads malformed.yaml. Raises pydantic's ValidationError if it has an invalid key or value."""
    return Malformed.model_validate(yaml.safe_load(path.read_text()))


class MalformedText(NamedTuple):
    """A malformed text.

    Attributes:
        truncated: whether the text is well-formed but gets truncated, after each of its tokens in turn.
        functions: the names of the functions that the text calls.
        words: words in the text that are not markers.
        values: argument values that an answer with calls must contain.
    """

    name: str
    text: str
    truncated: bool
    functions: frozenset[str]
    words: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()


def malformed_texts(family: Family) -> Iterator[MalformedText]:
    """Yields the malformed texts of a family."""
    if family.tool_parser is None:
        return
    dialect, table = find_dialect(family.dialect), load_malformed()
    for base in table.texts:
        if base.reasoning is not None and family.reasoning_parser is None:
            continue
        called = frozenset(name for call in base.calls for name in call)
        cities = {str(arguments["city"]) for call in base.calls for arguments in call.values()}
        try:
            text = render(family.dialect, base.meaning)
        except DialectError:
            yield from _beyond_the_format(dialect, base, called, cities)
            continue
        if base.name in table.truncated:
            yield MalformedText(f"{base.name}, cut off", text, truncated=True, functions=called)
        end = next(end for end in dialect.ends if text.endswith(end))
        body = text.removesuffix(end)
        for change in table.changes:
            changed = change.apply(body, dialect.reasoning[1] if dialect.reasoning else "")
            if changed != body:
                yield MalformedText(
                    f"{base.name}, {change.name}",
                    changed + end,
                    truncated=False,
                    functions=called.union(change.functions),
                    words=frozenset(word for word in {*called, *cities, *change.words} if word in changed),
                    values=frozenset(change.values),
                )


def _beyond_the_format(
    dialect: Dialect, base: NamedMeaning, called: frozenset[str], cities: set[str]
) -> Iterator[MalformedText]:
    """Yields a text that the format forbids but its parser may accept; the answer must not lose anything."""
    if dialect.render_anyway is None:
        return
    try:
        text = dialect.render_anyway(base.meaning)
    except DialectError:
        return
    words = frozenset(filter(None, {base.text, base.reasoning, *cities}))
    name = f"{base.name}, beyond the format"
    yield MalformedText(name, text, truncated=False, functions=called, words=words, values=words)
