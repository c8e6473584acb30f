"""Which tests judge a mutant, and in which order."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import chain, zip_longest

from vllm_harness._regression.changed.coverage import TestLines

SLOW_S = 3.0
"""Tests that take longer, as with servers of their own, come last; those of a whole table take less."""


def choose(
    tests: Sequence[TestLines],
    most: int = 0,
    kills: Mapping[str, int] | None = None,
    depth: Callable[[TestLines], int] = lambda _: 0,
    about: str = "",
    texts: Mapping[str, str] | None = None,
) -> list[TestLines]:
    """The tests in the order in which they run; those of one target stay together.

    First those that have killed mutants of the same file. Then, by turns, those whose names have most words
    in common with the change, those whose texts have, and those that run most of what is changed: of these
    one case of every test, a second of every test, and so on, where there is a choice on the model with the
    most of them. Of those that are kept, the slow ones come last, module by module.

    Args:
        tests: those that run what the mutant changes.
        most: so many at most; 0: all.
        kills: how many mutants of the same file each test has killed.
        depth: how many of the lines that the mutant changes a test runs.
        about: the change in words: its text, what it does, the functions that it is in.
        texts: of each test, the code of its function and the values of its case.
    """
    kills, texts = kills or {}, texts or {}
    of_target = Counter(test.target for test in tests)
    rounds = _rounds(tests, lambda test: (-depth(test), -of_target[test.target], test.seconds))

    def by_rounds(test: TestLines) -> tuple[int, int, int, float, str]:
        return -depth(test), rounds[test.test], -of_target[test.target], test.seconds, test.test

    spread = sorted(tests, key=by_rounds)
    names = {test.test: test.test for test in tests}
    both = {test: f"{test.rpartition('::')[2]} {texts[test]}" for test in names if test in texts}
    named, saying = (_by_words(spread, _common_words(each, about)) for each in (names, both))
    turns = chain.from_iterable(zip_longest(named, saying, spread))
    places = {test.test: place for place, test in reversed([*enumerate(filter(None, turns))])}

    def promise(test: TestLines) -> tuple[int, int]:
        return -kills.get(test.test, 0), places[test.test]

    def rank(test: TestLines) -> tuple[bool, str, int, int]:
        slow = test.seconds >= SLOW_S
        module = test.test.partition("::")[0] if slow else ""
        return slow, module, *promise(test)

    kept = sorted(sorted(tests, key=promise)[: most or None], key=rank)
    targets = list(dict.fromkeys(test.target for test in kept))
    return sorted(kept, key=lambda test: targets.index(test.target))


def _rounds(
    tests: Sequence[TestLines], order: Callable[[TestLines], tuple[int, int, float]]
) -> dict[str, int]:
    """The number that each case has among those of its test, on whatever model."""
    rounds: dict[str, int] = {}
    seen: Counter[str] = Counter()
    for test in sorted(tests, key=lambda test: (*order(test), test.test)):
        rounds[test.test] = seen[test.function]
        seen[test.function] += 1
    return rounds


def _by_words(tests: Sequence[TestLines], common: Mapping[str, float]) -> list[TestLines]:
    """The tests that have words in common with the change, those with most of them first."""
    having = [test for test in tests if common.get(test.test)]
    return sorted(having, key=lambda test: -common[test.test])


def _common_words(texts: Mapping[str, str], about: str) -> dict[str, float]:
    """What each test's text has in common with the change: a word counts more, the fewer tests have it."""
    words = _words(about)
    found = {test: _words(text) & words for test, text in texts.items()}
    having = Counter(chain.from_iterable(found.values()))
    return {
        test: sum(math.log(len(found) / having[word]) for word in common) for test, common in found.items()
    }


@cache
def _words(text: str) -> frozenset[str]:
    """The names in a text, and the words of which they and the text are made, a plural as its singular."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", text)
    words = {word.lower().removesuffix("s") for word in re.findall(r"[A-Za-z]{3,}", apart)}
    return frozenset(words | {name.lower() for name in re.findall(r"[A-Za-z]+_\w+", text)})
