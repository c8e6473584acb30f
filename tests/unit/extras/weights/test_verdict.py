"""The verdict on log-probabilities distinguishes rounding errors from a wrong kernel."""

from __future__ import annotations

import math

import pytest

from vllm_harness._runs.records import Outcome
from vllm_harness.extras.weights.check import DtypeCheck, check_prompts
from vllm_harness.extras.weights.records import case_of
from vllm_harness.extras.weights.verdict import (
    Answers,
    Candidate,
    DtypeComparison,
    Reference,
    common_prefix,
    compare,
    spread,
)

CLEAR, TIE, END = (5, 9), (6, 7), (2, 3)
TOKENS = [5, 6, 2]
TEXT = [-1.0, -2.0, -0.5, -7.0]
NOISE = 0.02


def step(ids: tuple[int, int], apart: float) -> list[Candidate]:
    best, second = ids
    return [
        Candidate(token=best, logprob=-0.5, text=f"word{best}"),
        Candidate(token=second, logprob=-0.5 - apart, text=f"word{second}"),
    ]


REFERENCE = Reference(
    prompts=[[1, 2]],
    text=[1, 2, 3, 4, 5],
    greedy=[[step(CLEAR, 3.0), step(TIE, 0.03), step(END, 3.0)]],
    logprobs={
        "float64": [value + 1e-6 for value in TEXT],
        "float32": TEXT,
        "bfloat16": [value + NOISE for value in TEXT],
    },
)


def compared(
    dtype: str, tokens: list[int] | None = None, off: float = 0.0, only: int | None = None
) -> DtypeComparison:
    """Compares answers whose log-probabilities are all, or only at position `only`, wrong by `off`."""
    logprobs = [value + (off if only in (None, at) else 0.0) for at, value in enumerate(TEXT)]
    return compare(dtype, REFERENCE, Answers([TOKENS if tokens is None else tokens], logprobs))


def test_equal_answers_agree() -> None:
    comparison = compared("float32")
    assert (comparison.verdict, comparison.same, comparison.prefixes) == ("agrees", 1, ((3, 3),))
    assert comparison.difference.largest == 0


def test_noise_of_float32() -> None:
    assert compared("float32", off=1.5e-6).verdict == "agrees"
    assert compared("float32", off=1e-3).verdict == "wrong"


def test_noise_of_a_dtype_is_no_error() -> None:
    assert compared("bfloat16", off=1.5 * NOISE).verdict == "agrees"
    assert compared("bfloat16", off=2.5 * NOISE).verdict == "wrong"
    assert compared("bfloat16", off=2.5 * NOISE, only=2).verdict == "agrees"


def test_one_large_difference_is_wrong() -> None:
    comparison = compared("bfloat16", off=5 * NOISE, only=2)
    assert comparison.difference.mean < 2 * NOISE
    assert comparison.verdict == "wrong"


def test_flip_at_a_near_tie_is_rounding() -> None:
    comparison = compared("bfloat16", tokens=[5, 7, 11, 12])
    (flip,) = comparison.flips
    assert (comparison.verdict, comparison.same, comparison.prefixes) == ("rounding", 0, ((1, 3),))
    assert flip.expected is not None
    assert flip.actual is not None
    assert (flip.at, flip.expected.token, flip.actual.token) == (1, 6, 7)
    assert flip.gap == pytest.approx(0.03)


def test_same_flip_is_wrong_in_float32() -> None:
    assert compared("float32", tokens=[5, 7, 11]).verdict == "wrong"


@pytest.mark.parametrize(
    "tokens",
    [[9, 6, 2], [5, 40, 2], [5, 6], [5, 6, 2, 2], []],
    ids=["clear", "unlikely", "short", "long", "nothing"],
)
def test_flip_that_is_not_a_near_tie_is_wrong(tokens: list[int]) -> None:
    comparison = compared("bfloat16", tokens=tokens)
    assert comparison.verdict == "wrong"
    assert not comparison.flips[0].near_tie


def test_nan_is_wrong() -> None:
    assert compared("bfloat16", off=math.nan).verdict == "wrong"
    assert spread([0.0, math.nan], [0.0, 0.0]).largest == math.inf


def test_record_of_a_run_folder() -> None:
    right, wrong = (
        case_of(DtypeCheck(compared("bfloat16", off=off), 1.0), "smollm2-135m") for off in (0.0, 1.0)
    )
    assert (right.outcome, right.findings) == (Outcome.PASSED, ())
    assert wrong.outcome == Outcome.FINDING
    assert "differ by 1 on average" in wrong.findings[0].message


def test_common_prefix() -> None:
    assert common_prefix([1, 2, 3], [1, 2, 4]) == 2
    assert common_prefix([1, 2], [1, 2, 3]) == common_prefix([1, 2, 3], [1, 2]) == 2
    assert common_prefix([], [1]) == 0


def test_prompts() -> None:
    inputs = check_prompts()
    assert len(set(inputs.prompts)) == 20
    assert len(inputs.text) > 500
    assert check_prompts(3).prompts == inputs.prompts[:3]
