"""Chooses the tests that judge a mutant, and their order."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import chain, zip_longest

from vllm_harness.extras.review.choice import in_running_order, spread
from vllm_harness.extras.review.coverage import TestLines


def choose(
    tests: Sequence[TestLines],
    most: int = 0,
    kills: Mapping[str, int] | None = None,
    depth: Callable[[TestLines], int] = lambda _: 0,
    about: str = "",
    texts: Mapping[str, str] | None = None,
) -> list[TestLines]:
    """Chooses tests, in the order in which they run; the tests of one target stay together.

    Tests that have killed mutants of the same file are chosen first. Then three lists take turns: the tests
    whose names have most words in common with the change, the tests whose texts do, and the tests that run
    most of the changed lines. The third list has one case of every test, then a second case of each, and so
    on, and prefers the target with the most tests. Chosen slow tests run last, module by module.

    Args:
        tests: the tests that run the lines that the mutant changes.
        most: the maximum number of tests; 0 for all.
        kills: test -> the number of mutants of the same file that it has killed.
        depth: returns the number of changed lines that a test runs.
        about: the change in words: its text, its description, and the functions that contain it.
        texts: test -> the code of its function and the values of its case.
    """
    kills, texts = kills or {}, texts or {}
    ordered = spread(tests, depth)
    names = {test.test: test.test for test in tests}
    both = {test: f"{test.rpartition('::')[2]} {texts[test]}" for test in names if test in texts}
    by_name, by_text = (_by_words(ordered, _common_words(words, about)) for words in (names, both))
    turns = chain.from_iterable(zip_longest(by_name, by_text, ordered))
    places = {test.test: place for place, test in reversed([*enumerate(filter(None, turns))])}
    chosen = sorted(tests, key=lambda test: (-kills.get(test.test, 0), places[test.test]))
    return in_running_order(chosen[: most or None])


def _by_words(tests: Sequence[TestLines], common: Mapping[str, float]) -> list[TestLines]:
    """The tests that have words in common with the change, sorted by decreasing weight of these words."""
    related = [test for test in tests if common.get(test.test)]
    return sorted(related, key=lambda test: -common[test.test])


def _common_words(texts: Mapping[str, str], about: str) -> dict[str, float]:
    """The weight of the words that each test's text has in common with the change; rare words weigh more."""
    words = _words(about)
    shared = {test: _words(text) & words for test, text in texts.items()}
    counts = Counter(chain.from_iterable(shared.values()))
    return {
        test: sum(math.log(len(shared) / counts[word]) for word in common) for test, common in shared.items()
    }


@cache
def _words(text: str) -> frozenset[str]:
    """The identifiers in a text, and all single words, including those in identifiers, without a plural s."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", text)
    words = {word.lower().removesuffix("s") for word in re.findall(r"[A-Za-z]{3,}", apart)}
    return frozenset(words | {name.lower() for name in re.findall(r"[A-Za-z]+_\w+", text)})
