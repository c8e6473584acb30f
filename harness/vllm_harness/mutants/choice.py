"""Which tests judge a mutant, and in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from vllm_harness.mutants.coverage import TestLines

SLOW_S = 2.0
"""Tests that take longer, as with servers of their own, come last."""


def choose(
    tests: Sequence[TestLines],
    most: int = 0,
    kills: Mapping[str, int] | None = None,
    depth: Callable[[TestLines], int] = lambda _: 0,
) -> list[TestLines]:
    """The tests in the order in which they run; those of one target stay together.

    First those that have killed mutants of the same file, then those that run most of what is changed; of
    these one case of every test, a second of every test, and so on, where there is a choice on the model with
    the most of them. The slow ones come last, module by module.

    Args:
        tests: those that run what the mutant changes.
        most: so many at most; 0: all.
        kills: how many mutants of the same file each test has killed.
        depth: how many of the lines that the mutant changes a test runs.
    """
    kills = kills or {}
    of_target = Counter(test.target for test in tests)

    def use(test: TestLines) -> tuple[int, int]:
        return -kills.get(test.test, 0), -depth(test)

    rounds = _rounds(tests, lambda test: (*use(test), -of_target[test.target], test.seconds))

    def rank(test: TestLines) -> tuple[bool, str, tuple[int, int], int, int, float, str]:
        slow = test.seconds >= SLOW_S
        module = test.test.partition("::")[0] if slow else ""
        place, shared = rounds[test.test], -of_target[test.target]
        return slow, module, use(test), place, shared, test.seconds, test.test

    kept = sorted(tests, key=rank)[: most or None]
    targets = list(dict.fromkeys(test.target for test in kept))
    return sorted(kept, key=lambda test: targets.index(test.target))


def _rounds(
    tests: Sequence[TestLines], order: Callable[[TestLines], tuple[int, int, int, float]]
) -> dict[str, int]:
    """The number that each case has among those of its test, on whatever model."""
    rounds: dict[str, int] = {}
    seen: Counter[str] = Counter()
    for test in sorted(tests, key=lambda test: (*order(test), test.test)):
        rounds[test.test] = seen[test.function]
        seen[test.function] += 1
    return rounds
