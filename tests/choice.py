"""Chooses the cases of a short run: a few for each test and behaviour, each with a model to run it."""

from __future__ import annotations

import hashlib
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A case of a test.

    Attributes:
        name: the pytest id of the case without the model.
        test: the test to which the case belongs.
        models: the models that can run the case, in the order of the run.
        covers: the behaviours that the case covers.
    """

    name: str
    test: str
    models: tuple[str, ...]
    covers: frozenset[str] = frozenset()


def seed_of_today() -> int:
    """Returns the seed for short runs: VLLM_HARNESS_SEED or, by default, today's date."""
    return int(os.environ.get("VLLM_HARNESS_SEED") or time.strftime("%Y%m%d"))


def choose(cases: Iterable[Case], most: int, seed: int) -> dict[str, str]:
    """Chooses the cases of a short run; returns each with the model that runs it.

    Args:
        cases: the cases that could run.
        most: the maximum number of cases per test; 0 for all. Behaviours not yet covered add further cases.
        seed: determines the chosen cases and models.
    """
    every = sorted(cases, key=lambda case: lot(seed, case.name))
    chosen = _first_of_each_test(every, most)
    seen = {behaviour for case in chosen for behaviour in case.covers}
    for case in every:
        if case.covers - seen:
            chosen.append(case)
            seen |= case.covers
    return {case.name: case.models[lot(seed, f"{case.name} on") % len(case.models)] for case in chosen}


def lot(seed: int, name: str) -> int:
    """Returns a pseudo-random number for a name and a seed."""
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8])


def few(names: Iterable[str], most: int, seed: int) -> frozenset[str]:
    """Draws up to `most` names; the seed determines the result."""
    return frozenset(sorted(names, key=lambda name: lot(seed, name))[:most])


def uncovered(behaviours: Iterable[str], cases: Iterable[Case], chosen: Mapping[str, str]) -> list[str]:
    """Returns the behaviours that no chosen case covers."""
    covered = {behaviour for case in cases if case.name in chosen for behaviour in case.covers}
    return sorted(set(behaviours) - covered)


def _first_of_each_test(cases: Iterable[Case], most: int) -> list[Case]:
    chosen: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        if not most or len(chosen[case.test]) < most:
            chosen[case.test].append(case)
    return [case for cases_of_test in chosen.values() for case in cases_of_test]
