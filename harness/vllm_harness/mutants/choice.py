"""Which tests judge a mutant, and in which order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from vllm_harness.mutants.coverage import TestLines

SLOW_S = 2.0
"""Tests that take longer, as with servers of their own, come last."""


def choose(
    tests: Sequence[TestLines], most: int = 0, kills: Mapping[str, int] | None = None
) -> list[TestLines]:
    """The tests in the order in which they run; those of one target stay together.

    First those that have killed mutants of the same file, then one case of every test, a second of every
    test, and so on; the slow ones last, module by module.

    Args:
        tests: those that run what the mutant changes.
        most: so many at most; 0: all.
        kills: how many mutants of the same file each test has killed.
    """
    kills = kills or {}
    rounds = _rounds(tests, kills)

    def rank(test: TestLines) -> tuple[bool, str, int, int, float, str]:
        slow = test.seconds >= SLOW_S
        module = test.test.partition("::")[0] if slow else ""
        return slow, module, -kills.get(test.test, 0), rounds[test.test], test.seconds, test.test

    ranked = sorted(tests, key=rank)
    kept = ranked[: most or None]
    targets = list(dict.fromkeys(test.target for test in kept))
    return sorted(kept, key=lambda test: targets.index(test.target))


def _rounds(tests: Collection[TestLines], kills: Mapping[str, int]) -> dict[str, int]:
    """The number that each case has among those of its test."""
    rounds: dict[str, int] = {}
    seen: dict[str, int] = defaultdict(int)
    for test in sorted(tests, key=lambda test: (-kills.get(test.test, 0), test.seconds, test.test)):
        rounds[test.test] = seen[test.function]
        seen[test.function] += 1
    return rounds
