"""The books of upstream's test files: what the model says in each test, one YAML file for each test file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
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
    """What a test without a server asks of vLLM's Python code that a release was the first to have.

    Attributes:
        since: the release.
        why: what it is, and why it is no defect of those before.
        failure: a pattern of how the test fails on those.
    """

    since: str
    why: str
    failure: str


class UpstreamRule(RuleSpec):
    """A rule of a script book, and what its answer rests on.

    Attributes:
        prompt: texts that the model's prompt must hold, as vLLM made it: what a model that gives this answer
            has to know. A test whose prompt lacks one fails.
    """

    prompt: tuple[str, ...] = ()


class UpstreamBook(StrictModel):
    """What is known of the tests of one file of upstream's.

    A test is named as pytest names it, with its class and its parameters or without; `*` stands for any
    text. Of several names that fit a test the longest counts.

    Attributes:
        file: the test file, relative to upstream's root.
        tests: what the model says in each test: rules, tried in order.
        skips: why a test cannot run on the scripted lane.
        runs: tests that upstream skips for a reason that the scripted lane does not have.
        defects: tests that show a known defect.
        newer: tests without a server that ask for what earlier releases have not, where that is no defect.
        retried: tests whose helper asks again on account of a known defect: its id.
        any_answer: tests that pass with any answer, since they look at its form alone: why, by what they
            assert.
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
        """The rules of a test, each with a name; empty where the book does not know it."""
        found = _fitting(self.tests, test) or ()
        return tuple(
            rule if rule.name else rule.model_copy(update={"name": f"{test} {number}"})
            for number, rule in enumerate(found, start=1)
        )

    def skip(self, test: str) -> str | None:
        """Why a test cannot run; None where it can."""
        return _fitting(self.skips, test)

    def runs_anyway(self, test: str) -> bool:
        """Whether a test runs although upstream skips it."""
        return bool(_fitting(dict.fromkeys(self.runs, "yes"), test))

    def defect(self, test: str) -> ShownDefect | None:
        """The known defect that a test shows; None for none."""
        return _fitting(self.defects, test)

    def newer_feature(self, test: str) -> NewerFeature | None:
        """What a test asks for that earlier releases have not; None for nothing."""
        return _fitting(self.newer, test)

    def retried_for(self, test: str) -> str | None:
        """The id of the known defect on whose account a test's helper asks again; None for none."""
        return _fitting(self.retried, test)

    def any_answer_for(self, test: str) -> str | None:
        """Why a test passes with any answer; None where one should make it fail."""
        return _fitting(self.any_answer, test)


@dataclass(frozen=True)
class _Name:
    """A name of a test in a book, `*` for any text; without parameters it is for all of them."""

    text: str

    def fits(self, test: str) -> bool:
        pattern = ".*".join(map(re.escape, self.text.split("*")))
        return (
            re.fullmatch(pattern if "[" in self.text else rf"{pattern}(\[.*\])?", test, re.DOTALL) is not None
        )


def _fitting(table: Mapping[str, _T], test: str) -> _T | None:
    names = [name for name in table if _Name(name).fits(test)]
    return table[max(names, key=len)] if names else None


@cache
def load_books(folder: Path = FOLDER) -> dict[str, UpstreamBook]:
    """The books by their test files. Raises UsageError naming file, line and key."""
    adapter = TypeAdapter(UpstreamBook)
    books = [read_yaml(path).validated(adapter) for path in sorted(folder.glob("*.yaml"))]
    return {book.file: book for book in books}


def book_of(path: Path) -> UpstreamBook:
    """The book of a test file by its path; an empty one where there is none."""
    text = path.as_posix()
    named = (book for file, book in load_books().items() if text.endswith(f"/{file}"))
    return next(named, UpstreamBook(file=text))
