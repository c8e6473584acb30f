"""Predicates over values, as data."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import model_validator

from vllm_harness._files.strict import Pattern, StrictModel
from vllm_harness._protocol.core.findings import brief
from vllm_harness._scenarios.shorthands import ONE_OR_MORE, Plain, value_as

Number = int | float


class PredicateSpec(StrictModel):
    """The conditions that a value must meet; all given keys must hold.

    Attributes:
        equals: the value; `1` equals `1.0`, but not `true`.
        contains: strings that it must contain, in upper or lower case; a value that is not a string is first
            converted to JSON.
        matches: a regular expression that must match somewhere in it.
        one_of: the allowed values.
        at_least, at_most: the bounds of a number.
        absent: the value must be absent.
    """

    equals: Plain = None
    contains: Annotated[tuple[str, ...], ONE_OR_MORE] = ()
    matches: Pattern | None = None
    one_of: tuple[Plain, ...] = ()
    at_least: Number | None = None
    at_most: Number | None = None
    absent: bool = False

    @model_validator(mode="after")
    def _asks_something(self) -> PredicateSpec:
        if not self.model_fields_set:
            raise ValueError(f"give at least one of: {', '.join(type(self).model_fields)}")
        if self.absent and len(self.model_fields_set) > 1:
            raise ValueError("an absent value cannot be compared")
        return self

    def objection(self, value: Any) -> str | None:
        """Says what a value should be; None if the value meets the predicate."""
        checks = (
            ("equals" in self.model_fields_set and not same(self.equals, value), brief(self.equals)),
            (not _holds(self.contains, value), f"with {' and '.join(map(brief, self.contains))} in it"),
            (self.matches is not None and not _found(self.matches, value), f"that matches {self.matches!r}"),
            (
                bool(self.one_of) and not any(same(each, value) for each in self.one_of),
                f"one of {', '.join(map(brief, self.one_of))}",
            ),
            (not _within(self.at_least, value, self.at_most), _bounds(self.at_least, self.at_most)),
            (self.absent, "nothing"),
        )
        return next((text for broken, text in checks if broken), None)


Predicate = Annotated[PredicateSpec, value_as("equals")]
"""A predicate; a value that is not a mapping stands for `equals`."""


def objections(expected: Mapping[str, PredicateSpec], arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Lists the arguments that break their predicates: the name, and what the argument should be."""
    broken = []
    for name, predicate in expected.items():
        if name not in arguments:
            objection = None if predicate.absent else "a value"
        else:
            objection = predicate.objection(arguments[name])
        if objection is not None:
            broken.append((name, objection))
    return broken


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal; `true` does not equal 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def as_text(value: Any) -> str:
    """Returns a string unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _holds(parts: tuple[str, ...], value: Any) -> bool:
    text = as_text(value).casefold()
    return all(part.casefold() in text for part in parts)


def _found(pattern: str, value: Any) -> bool:
    return re.search(pattern, as_text(value)) is not None


def _within(least: Number | None, value: Any, most: Number | None) -> bool:
    if least is None and most is None:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return (least is None or value >= least) and (most is None or value <= most)


def _bounds(least: Number | None, most: Number | None) -> str:
    bounds = (("at least", least), ("at most", most))
    return "a number of " + " and ".join(f"{word} {bound}" for word, bound in bounds if bound is not None)
