"""Reads the books for upstream's test files: a YAML file for each, with what the model says in each test."""

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
    """A known defect that a test shows: the defect's id, and a pattern that the test's failure matches."""

    id: str
    failure: str


class NewerFeature(StrictModel):
    """A feature of vLLM's Python code that a test without a server needs and that earlier releases lack.

    Attributes:
        since: the first release with the feature.
        why: what the feature is, and why its absence is not a defect.
        failure: a pattern that the test's failure on earlier releases matches.
    """

    since: str
    why: str
    failure: str


class UpstreamRule(RuleSpec):
    """A rule of a script book, with the strings in the prompt that its answer depends on.

    Attributes:
        prompt: strings that vLLM's prompt must contain, since a model must know them to give this answer. If
            the prompt lacks one of them, the test fails.
    """

    prompt: tuple[str, ...] = ()


class UpstreamBook(StrictModel):
    """The model's answers, and other facts, for the tests in one of upstream's files.

    Tests are named as pytest names them, with the class, and with or without parameters; `*` stands for any
    string. If several names match a test, the longest name applies.

    Attributes:
        file: the test file, relative to upstream's root.
        tests: for each test, the rules for the model's answers, tried in order.
        skips: for each test that cannot run on the scripted lane, the reason.
        runs: tests that upstream skips for a reason that does not apply to the scripted lane.
        defects: for each test that shows a known defect, that defect.
        newer: for each test without a server that needs a feature of a later vLLM, that feature.
        retried: for each test whose helper repeats requests because of a known defect, the defect's id.
        any_answer: for each test that passes with any answer, what it asserts about the form of the answer.
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
        """The rules for a test, each with a name; empty if the book does not name the test."""
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
        """The feature that a test needs and that earlier releases lack, if any."""
        return _matching(self.newer, test)

    def retried_for(self, test: str) -> str | None:
        """The id of the known defect that makes a test's helper repeat requests, if any."""
        return _matching(self.retried, test)

    def any_answer_for(self, test: str) -> str | None:
        """Why a test passes with any answer; None if a wrong answer should make it fail."""
        return _matching(self.any_answer, test)


def _matching(table: Mapping[str, _T], test: str) -> _T | None:
    names = [name for name in table if _matches(name, test)]
    return table[max(names, key=len)] if names else None


def _matches(name: str, test: str) -> bool:
    """Whether a name in a book matches a test; a name without parameters matches all parameters."""
    pattern = ".*".join(map(re.escape, name.split("*")))
    return re.fullmatch(pattern if "[" in name else rf"{pattern}(\[.*\])?", test, re.DOTALL) is not None


@cache
def load_books(folder: Path = FOLDER) -> dict[str, UpstreamBook]:
    """Reads the books, by test file. Raises UsageError with the file, line and key if one is invalid."""
    adapter = TypeAdapter(UpstreamBook)
    books = [read_yaml(path).validated(adapter) for path in sorted(folder.glob("*.yaml"))]
    return {book.file: book for book in books}


def book_of(path: Path) -> UpstreamBook:
    """The book for a test file; an empty book if the package has none for it."""
    text = path.as_posix()
    books = (book for file, book in load_books().items() if text.endswith(f"/{file}"))
    return next(books, UpstreamBook(file=text))
