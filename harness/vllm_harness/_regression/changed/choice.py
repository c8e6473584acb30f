"""Chooses the tests that judge a mutant or a change of vLLM's serving code, and their order."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path

from vllm_harness._regression.changed.coverage import Coverage, TestLines
from vllm_harness._regression.changed.serving import changed_statements, serving_files

MOST = 60
"""The default number of tests that judge a change, which take about a minute."""
SLOW_S = 3.0
"""Tests that take longer, such as those that start a server, come last."""


def touched_tests(
    before: Path, after: Path, files: Collection[str], coverage: Coverage, most: int = MOST
) -> list[TestLines] | None:
    """The tests that ran the lines that a change affects, each test once before further cases of it.

    Args:
        before: vLLM's package for which the lines were measured.
        after: the package with the change.
        files: the files that differ, as paths below the package.
        coverage: the lines that the tests ran.
        most: the largest number of tests; 0 for all.

    Returns:
        None if a file is not serving code or exists on one side only, so that its tests are unknown.
    """
    if not set(files) <= {*serving_files(before)} & {*serving_files(after)}:
        return None
    tests: dict[str, TestLines] = {}
    for file in files:
        old, new = (package.joinpath(file).read_text() for package in (before, after))
        tests |= {test.test: test for test in coverage.running(file, changed_statements(old, old, new))}
    return choose(list(tests.values()), most)


def choose(
    tests: Sequence[TestLines],
    most: int = 0,
    kills: Mapping[str, int] | None = None,
    depth: Callable[[TestLines], int] = lambda _: 0,
    about: str = "",
    texts: Mapping[str, str] | None = None,
) -> list[TestLines]:
    """Chooses tests, in the order in which they run; those of one target stay together.

    First come the tests that have killed mutants of the same file. Then follow by turns the tests whose names
    have most words in common with the change, those whose texts do, and those that run most of the changed
    lines. The last begin with one case of every test, continue with a second case of every test, and prefer
    the target with the most tests. Among the chosen tests the slow ones run last, module by module.

    Args:
        tests: the tests that run what the mutant changes.
        most: the largest number of tests; 0 for all.
        kills: test -> the number of mutants of the same file that it has killed.
        depth: returns the number of changed lines that a test runs.
        about: the change in words: its text, its description, and the functions that contain it.
        texts: test -> the code of its function and the values of its case.
    """
    kills, texts = kills or {}, texts or {}
    of_target = Counter(test.target for test in tests)
    rounds = _rounds(tests, lambda test: (-depth(test), -of_target[test.target], test.seconds))

    def by_rounds(test: TestLines) -> tuple[int, int, int, float, str]:
        return -depth(test), rounds[test.test], -of_target[test.target], test.seconds, test.test

    spread = sorted(tests, key=by_rounds)
    names = {test.test: test.test for test in tests}
    both = {test: f"{test.rpartition('::')[2]} {texts[test]}" for test in names if test in texts}
    by_name, by_text = (_by_words(spread, _common_words(words, about)) for words in (names, both))
    turns = chain.from_iterable(zip_longest(by_name, by_text, spread))
    places = {test.test: place for place, test in reversed([*enumerate(filter(None, turns))])}

    def promise(test: TestLines) -> tuple[int, int]:
        return -kills.get(test.test, 0), places[test.test]

    def rank(test: TestLines) -> tuple[bool, str, int, int]:
        slow = test.seconds >= SLOW_S
        module = test.test.partition("::")[0] if slow else ""
        return slow, module, *promise(test)

    chosen = sorted(sorted(tests, key=promise)[: most or None], key=rank)
    targets = list(dict.fromkeys(test.target for test in chosen))
    return sorted(chosen, key=lambda test: targets.index(test.target))


def _rounds(
    tests: Sequence[TestLines], order: Callable[[TestLines], tuple[int, int, float]]
) -> dict[str, int]:
    """The position of each case among the cases of its test on all models."""
    rounds: dict[str, int] = {}
    seen: Counter[str] = Counter()
    for test in sorted(tests, key=lambda test: (*order(test), test.test)):
        rounds[test.test] = seen[test.function]
        seen[test.function] += 1
    return rounds


def _by_words(tests: Sequence[TestLines], common: Mapping[str, float]) -> list[TestLines]:
    """The tests that have words in common with the change, those with the most first."""
    related = [test for test in tests if common.get(test.test)]
    return sorted(related, key=lambda test: -common[test.test])


def _common_words(texts: Mapping[str, str], about: str) -> dict[str, float]:
    """Weighs the words that each test's text has in common with the change; rare words weigh more."""
    words = _words(about)
    shared = {test: _words(text) & words for test, text in texts.items()}
    counts = Counter(chain.from_iterable(shared.values()))
    return {
        test: sum(math.log(len(shared) / counts[word]) for word in common) for test, common in shared.items()
    }


@cache
def _words(text: str) -> frozenset[str]:
    """The identifiers in a text, and the single words in it and in its identifiers, without a plural s."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", text)
    words = {word.lower().removesuffix("s") for word in re.findall(r"[A-Za-z]{3,}", apart)}
    return frozenset(words | {name.lower() for name in re.findall(r"[A-Za-z]+_\w+", text)})
