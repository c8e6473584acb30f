"""Chooses the cases of a short run, and a model for each: a few of each test and behaviour."""

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
        name: its id without a model.
        test: the test that it is a case of.
        models: the models that can run it, in the order of the run.
        covers: the behaviours that it covers.
    """

    name: str
    test: str
    models: tuple[str, ...]
    covers: frozenset[str] = frozenset()


def seed_of_today() -> int:
    """Returns the seed of short runs: VLLM_HARNESS_SEED, or else the date."""
    return int(os.environ.get("VLLM_HARNESS_SEED") or time.strftime("%Y%m%d"))


def choose(cases: Iterable[Case], most: int, seed: int) -> dict[str, str]:
    """Returns the cases of a short run, each with the model that runs it; the seed determines the result.

    Args:
        cases: the cases that could run.
        most: the number of cases of each test; 0 for all. A behaviour that none of these covers adds one.
        seed: another seed chooses other cases and other models.
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
    """Draws up to `most` of the names with a seed."""
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
