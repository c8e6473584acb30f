"""Reads the books of upstream's test files: what the model says in each test, a YAML file for each file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

from pydantic import Field, TypeAdapter

from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.strict import StrictModel
from vllm_harness._scripted.book_file import RuleSpec

_T = TypeVar("_T")
FOLDER = Path(__file__).with_name("books")


class ShownDefect(StrictModel):
    """A known defect that a test shows: its id in the registry, and a pattern of the test's failure."""

    id: str
    failure: str


class NewerFeature(StrictModel):
    """A feature of vLLM's Python code that a test without a server needs and earlier releases lack.

    Attributes:
        since: the first release with the feature.
        why: what it is, and why its absence is not a defect.
        failure: a pattern of the test's failure on earlier releases.
    """

    since: str
    why: str
    failure: str


class UpstreamRule(RuleSpec):
    """A rule of a script book, with the texts that its answer depends on.

    Attributes:
        prompt: texts that vLLM's prompt must contain, since a model must know them to give this answer. A
            test whose prompt lacks one fails.
    """

    prompt: tuple[str, ...] = ()


class UpstreamBook(StrictModel):
    """The answers of the model, and other facts, for the tests of one of upstream's files.

    Tests have pytest's names, with the class, and with or without parameters; `*` stands for any text. If
    several names match a test, the longest counts.

    Attributes:
        file: the test file, relative to upstream's root.
        tests: test -> what the model says: rules, tried in order.
        skips: test -> why it cannot run on the scripted lane.
        runs: tests that upstream skips for a reason that does not hold on the scripted lane.
        defects: test -> the known defect that it shows.
        newer: test without a server -> the feature that it needs and earlier releases lack.
        retried: test -> the id of the known defect because of which its helper repeats requests.
        any_answer: test that passes with any answer -> what it asserts about the answer's form alone.
    """

    file: str
    tests: dict[str, tuple[UpstreamRule, ...]] = Field(default_factory=dict)
    skips: dict[str, str] = Field(default_factory=dict)
    runs: tuple[str, ...] = ()
    defects: dict[str, ShownDefect] = Field(default_factory=dict)
    newer: dict[str, NewerFeature] = Field(default_factory=dict)
    retried: dict[str, str] = Field(default_factory=dict)
    any_answer: dict[str, str] = Field(default_factory=dict)

    def rules(self, test: str) -> tuple[UpstreamRule, ...]:
        """The rules of a test, each with a name; empty if the book does not have the test."""
        rules = _matching(self.tests, test) or ()
        return tuple(
            rule if rule.name else rule.model_copy(update={"name": f"{test} {number}"})
            for number, rule in enumerate(rules, start=1)
        )

    def skip(self, test: str) -> str | None:
        """Why a test cannot run; None if it can."""
        return _matching(self.skips, test)

    def runs_anyway(self, test: str) -> bool:
        """Whether a test runs although upstream skips it."""
        return bool(_matching(dict.fromkeys(self.runs, "yes"), test))

    def defect(self, test: str) -> ShownDefect | None:
        """The known defect that a test shows, if any."""
        return _matching(self.defects, test)

    def newer_feature(self, test: str) -> NewerFeature | None:
        """The feature that a test needs and earlier releases lack, if any."""
        return _matching(self.newer, test)

    def retried_for(self, test: str) -> str | None:
        """The id of the known defect because of which a test's helper repeats requests, if any."""
        return _matching(self.retried, test)

    def any_answer_for(self, test: str) -> str | None:
        """Why a test passes with any answer; None if a wrong answer should make it fail."""
        return _matching(self.any_answer, test)


def _matching(table: Mapping[str, _T], test: str) -> _T | None:
    names = [name for name in table if _matches(name, test)]
    return table[max(names, key=len)] if names else None


def _matches(name: str, test: str) -> bool:
    """Whether a name in a book matches a test; a name without parameters matches any."""
    pattern = ".*".join(map(re.escape, name.split("*")))
    return re.fullmatch(pattern if "[" in name else rf"{pattern}(\[.*\])?", test, re.DOTALL) is not None


@cache
def load_books(folder: Path = FOLDER) -> dict[str, UpstreamBook]:
    """Reads the books: test file -> book. Raises UsageError with file, line and key."""
    adapter = TypeAdapter(UpstreamBook)
    books = [read_yaml(path).validated(adapter) for path in sorted(folder.glob("*.yaml"))]
    return {book.file: book for book in books}


def book_of(path: Path) -> UpstreamBook:
    """The book of a test file; an empty one if the package has none."""
    text = path.as_posix()
    books = (book for file, book in load_books().items() if text.endswith(f"/{file}"))
    return next(books, UpstreamBook(file=text))
