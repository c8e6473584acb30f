"""pass@k and pass^k with their confidence intervals, and the requests of a repeated test."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from vllm_harness._testing.repeats import Estimate, pass_all, pass_at, sampled, summary, wilson

pytestmark = pytest.mark.covers("GO-009")


@pytest.mark.parametrize(
    ("passed", "trials", "low", "high"),
    # bounds from statsmodels' proportion_confint(method="wilson")
    [(8, 10, 0.4902, 0.9433), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (1, 2, 0.0945, 0.9055)],
)
def test_wilson(passed: int, trials: int, low: float, high: float) -> None:
    estimate = wilson(passed, trials)
    assert estimate.value == passed / trials
    assert (estimate.low, estimate.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


@pytest.mark.parametrize(("passed", "trials", "k"), [(3, 5, 1), (3, 5, 2), (1, 5, 3), (0, 5, 2), (5, 5, 4)])
def test_estimates_are_means_over_all_rows_of_k_tries(passed: int, trials: int, k: int) -> None:
    outcomes = [True] * passed + [False] * (trials - passed)
    rows = list(itertools.product(outcomes, repeat=k))
    interval = wilson(passed, trials)
    assert pass_at(k, interval).value == pytest.approx(sum(map(any, rows)) / len(rows))
    assert pass_all(k, interval).value == pytest.approx(sum(map(all, rows)) / len(rows))


@pytest.mark.parametrize("passed", range(6))
def test_intervals_contain_their_estimate(passed: int) -> None:
    interval = wilson(passed, 5)
    for k in range(1, 6):
        for estimate in (pass_at(k, interval), pass_all(k, interval)):
            assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1


def test_summary_of_cases() -> None:
    summed = summary({"a": {0: True, 1: True}, "b": {0: True, 1: False}, "c": {0: False, 1: False}, "d": {}})
    assert [(case["passed"], case["trials"]) for case in summed["cases"].values()] == [(2, 2), (1, 2), (0, 2)]
    assert summed["pass@k"]["value"] == pytest.approx(2 / 3)
    assert summed["pass^k"]["value"] == pytest.approx(1 / 3)
    assert summary({}) == {}


def test_estimate_as_text() -> None:
    assert str(Estimate(0.5, 0.25, 0.75)) == "0.50 [0.25, 0.75]"


@pytest.mark.parametrize(
    ("request_", "changed"),
    [
        ({"input": "hi"}, True),
        ({"input": "hi", "temperature": 0}, True),
        ({"messages": [], "temperature": None}, True),
        ({"input": "hi", "temperature": 0.3}, False),
        ({"prompt": "hi"}, False),
    ],
)
def test_greedy_generations_are_sampled(request_: dict[str, Any], changed: bool) -> None:
    sent = sampled(request_, 7)
    assert sent == ({**request_, "temperature": 0.8, "seed": 7} if changed else request_)
