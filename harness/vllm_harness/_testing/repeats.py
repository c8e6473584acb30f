"""Repeats: each live test runs K times, with the seeds 0 to K-1, for pass@k and pass^k.

pass@k is the chance that at least one of k tries passes, and pass^k the chance that all do. Both are computed
from the chance that a single try passes, as their unbiased estimates need more than k tries: with exactly k
tries these are always 0 or 1. Sources: Chen et al. 2021, "Evaluating Large Language Models Trained on Code"
(pass@k); Yao et al. 2024, "tau-bench" (pass^k); Wilson 1927 (the interval).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import sqrt
from statistics import NormalDist
from typing import Any

TEMPERATURE = 0.8
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A share with its 95% confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def wilson(passed: int, trials: int) -> Estimate:
    """The share of passes with Wilson's score interval, which is also valid for few trials."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    share = passed / trials
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return Estimate(share, max(0.0, middle - half), min(1.0, middle + half))


def pass_at(k: int, single: Estimate) -> Estimate:
    """The chance that at least one of k tries passes, from the chance of a single try."""
    return Estimate(1 - (1 - single.value) ** k, 1 - (1 - single.low) ** k, 1 - (1 - single.high) ** k)


def pass_all(k: int, single: Estimate) -> Estimate:
    """The chance that all of k tries pass, from the chance of a single try."""
    return Estimate(single.value**k, single.low**k, single.high**k)


def sampled(request: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Adds temperature 0.8 and a seed to a request that generates text and sets no temperature above 0."""
    if request.get("temperature") or ("input" not in request and "messages" not in request):
        return dict(request)
    return {**request, "temperature": TEMPERATURE, "seed": seed}


def summary(trials: Mapping[str, Mapping[int, bool]]) -> dict[str, Any]:
    """The estimates for results.json: for each case, and for the share of cases that passed.

    Args:
        trials: case -> seed -> whether it passed; an error is a failure.
    """
    cases = {name: _of(list(seeds.values())) for name, seeds in trials.items() if seeds}
    if not cases:
        return {}
    number = len(cases)
    return {
        "cases": cases,
        "pass@k": asdict(wilson(sum(1 for case in cases.values() if case["passed"]), number)),
        "pass^k": asdict(wilson(sum(1 for c in cases.values() if c["passed"] == c["trials"]), number)),
    }


def _of(outcomes: list[bool]) -> dict[str, Any]:
    trials, passed = len(outcomes), sum(outcomes)
    single = wilson(passed, trials)
    return {
        "trials": trials,
        "passed": passed,
        "pass@1": asdict(single),
        "pass@k": asdict(pass_at(trials, single)),
        "pass^k": asdict(pass_all(trials, single)),
    }


HEADINGS = ("passed", "pass@1", "pass@k", "pass^k", "case")


def rows(summed: Mapping[str, Any]) -> list[list[str]]:
    """The rows of a summary for the terminal: each case that did not always pass, then all cases together."""
    failed = []
    for name, case in summed["cases"].items():
        if case["passed"] < case["trials"]:
            estimates = [str(Estimate(**case[key])) for key in ("pass@1", "pass@k", "pass^k")]
            failed.append([f"{case['passed']} of {case['trials']}", *estimates, name])
    overall = [str(Estimate(**summed[key])) for key in ("pass@k", "pass^k")]
    return [*failed, ["", "", *overall, f"all {len(summed['cases'])} cases"]]
