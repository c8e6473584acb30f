"""Malformed texts: a family's own texts, changed by the table malformed.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import Field

from vllm_harness._files.strict import StrictModel
from vllm_harness._scripted.dialects import Dialect, DialectError, find_dialect, render
from vllm_harness._scripted.families import Family
from vllm_harness._scripted.meaning import Meaning, ToolCall

FILE = Path(__file__).with_name("malformed.yaml")
_THOUGHTS_END = "{thoughts end}"


class BaseText(StrictModel):
    """A text before it is changed."""

    name: str
    reasoning: str | None = None
    text: str | None = None
    calls: tuple[dict[str, dict[str, Any]], ...]

    @property
    def meaning(self) -> Meaning:
        """Its parts in order."""
        calls = tuple(ToolCall(name, arguments) for call in self.calls for name, arguments in call.items())
        return Meaning.of(self.text, reasoning=self.reasoning, calls=calls)


class TextChange(StrictModel):
    """What makes a text malformed: the last match of a regular expression, or the first, is replaced.

    `{thoughts end}` in the expression is what closes the family's thoughts.

    Attributes:
        functions: names that are called only in the changed text.
        words: that stand only in the changed text.
        values: that an answer with calls must have.
    """

    name: str
    find: re.Pattern[str]
    replacement: str = Field(alias="with")
    first: bool = False
    functions: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    def apply(self, text: str, thoughts_end: str = "") -> str:
        """The changed text; the same where nothing matches."""
        if _THOUGHTS_END in self.find.pattern and not thoughts_end:
            return text
        find = self.find.pattern.replace(_THOUGHTS_END, re.escape(thoughts_end))
        matches = list(re.finditer(find, text))
        if not matches:
            return text
        match = matches[0 if self.first else -1]
        return text[: match.start()] + match.expand(self.replacement) + text[match.end() :]


class Malformed(StrictModel):
    """The whole table."""

    texts: tuple[BaseText, ...]
    truncated: tuple[str, ...]
    changes: tuple[TextChange, ...]


@cache
def load_malformed(path: Path = FILE) -> Malformed:
    """Reads the table; raises pydantic's ValidationError, naming the key, where it is malformed."""
    return Malformed.model_validate(yaml.safe_load(path.read_text()))


class MalformedText(NamedTuple):
    """A malformed text.

    Attributes:
        name: unique within its family.
        text: raw text.
        truncated: whether it is well-formed, and truncated after each of its tokens.
        functions: the names that it calls.
        words: of it, none of them a marker.
        values: of its arguments, those that an answer with calls must have.
    """

    name: str
    text: str
    truncated: bool
    functions: frozenset[str]
    words: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()


def malformed_texts(family: Family) -> Iterator[MalformedText]:
    """The malformed texts of a family."""
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
            yield from _beyond(dialect, base, called)
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


def _beyond(dialect: Dialect, base: BaseText, called: frozenset[str]) -> Iterator[MalformedText]:
    """A text that the format has no place for, though its parser may take it: none of it may be lost."""
    if dialect.render_anyway is None:
        return
    try:
        text = dialect.render_anyway(base.meaning)
    except DialectError:
        return
    cities = {str(arguments["city"]) for call in base.calls for arguments in call.values()}
    said = frozenset(filter(None, {base.text, base.reasoning, *cities}))
    name = f"{base.name}, beyond the format"
    yield MalformedText(name, text, truncated=False, functions=called, words=said, values=said)
