"""The log of a soak adds up, and its summary says which probability of a fault the trials rule out."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.soak.log import TrialResult, append, read, rows, upper_bound

PASSED = TrialResult(
    at="2026-01-05T10:15:00",
    commit="abc",
    seed=1,
    number=0,
    victim="engine",
    command="load",
    by="seconds",
    share=0.5,
    busy=0,
    killed_s=2.0,
    code=3,
    seconds=4.0,
    next_code=0,
    next_seconds=5.0,
)
LATE = dataclasses.replace(PASSED, killed_s=None, code=0, next_code=None, next_seconds=None)
LEFT = dataclasses.replace(PASSED, victim="owner", code=-9, left=["pid 7"])
FAILED = dataclasses.replace(PASSED, victim="owner", next_code=1, next_passed=False)
HUNG = dataclasses.replace(PASSED, victim="owner", code=None)


def test_without_a_fault_the_bound_is_exact() -> None:
    for trials in (1, 5, 59, 1000):
        assert upper_bound(0, trials) == pytest.approx(1 - 0.05 ** (1 / trials), abs=1e-9)
    assert upper_bound(0, 1000) == pytest.approx(3 / 1000, rel=0.01)


def test_faults_raise_the_bound() -> None:
    assert upper_bound(1, 20) == pytest.approx(0.2161, abs=1e-4)  # a table of Clopper and Pearson's bounds
    assert upper_bound(20, 20) == upper_bound(0, 0) == 1


def test_the_log_adds_up(tmp_path: Path) -> None:
    log = tmp_path / "soak" / "kills.jsonl"
    assert read(log) == []
    append(PASSED, log)
    with log.open("a") as file:
        file.write('{"at": "2026-01')  # a soak was killed
    append(LEFT, log)
    assert read(log) == [PASSED, LEFT]


def test_the_summary_counts_faults_but_no_late_kill() -> None:
    assert rows([PASSED, LATE, PASSED, LEFT, FAILED, HUNG]) == [
        ("engine", "2", "1", "0", "0", "0", "77.6 %", "3: 2"),
        ("owner", "3", "0", "1", "1", "1", "100.0 %", "-9: 1, 3: 1, None: 1"),
        ("all", "5", "1", "1", "1", "1", "92.4 %", "-9: 1, 3: 3, None: 1"),
    ]


@pytest.mark.parametrize(("result", "fault"), [(PASSED, False), (LATE, False), (LEFT, True), (HUNG, True)])
def test_a_sentence_says_what_happened(result: TrialResult, fault: bool) -> None:
    assert result.is_fault == fault
    assert ("pid 7" in result.sentence()) == (result is LEFT)
    assert ("did not end" in result.sentence()) == (result is HUNG)
    assert ("before the kill" in result.sentence()) == (result is LATE)
