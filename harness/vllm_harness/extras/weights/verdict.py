"""Compares a server's numbers with the reference, and distinguishes rounding from a wrong kernel.

The limits are multiples of the noise, which is the effect of a dtype on the reference itself; a server also
sums in another order. Multiples of the noise for SmolLM2-135M-Instruct on vLLM 0.32.0, CPU with AVX-512:

    dtype      largest difference   mean difference   widest flip
    float32                   0.9               0.7             -
    bfloat16                  1.7               1.1           0.9
    float16                   1.5               1.0           0.1

Each limit is about twice the largest figure in its column. The mean, over 217 tokens, varies less,
so its limit is tighter. With one matrix of layer 15 stored backwards, the figures are 12 and 15 in
bfloat16; with the last bits of its values flipped (under one percent each), 370 and 170 in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vllm_harness._files.strict import StrictModel

LARGEST = 4.0
MEAN = 2.0
NEAR_TIE = 2.0

Verdict = Literal["agrees", "rounding", "wrong"]


class Candidate(StrictModel):
    """One of the most likely tokens at a generation step."""

    token: int
    logprob: float
    text: str


class Reference(StrictModel):
    """The reference that transformers computes.

    Attributes:
        prompts: the token ids of each prompt.
        text: the token ids of the text whose log-probabilities are compared.
        greedy: for each prompt, the greedy steps in float32; each lists its best tokens, the chosen first.
        logprobs: for each dtype, the log-probability of every token of the text after the first.
    """

    prompts: list[list[int]]
    text: list[int]
    greedy: list[list[list[Candidate]]]
    logprobs: dict[str, list[float]]


@dataclass(frozen=True)
class Answers:
    """A server's answers: the token ids for each prompt, and the log-probabilities of the text's tokens."""

    tokens: list[list[int]]
    logprobs: list[float]


@dataclass(frozen=True)
class LogprobSpread:
    """The largest and the mean absolute difference between log-probabilities, in nats."""

    largest: float
    mean: float

    def within(self, other: LogprobSpread) -> bool:
        """Whether both figures are within the limits for the noise `other`."""
        return self.largest <= LARGEST * other.largest and self.mean <= MEAN * other.mean


@dataclass(frozen=True)
class Flip:
    """The first token of an answer that differs from the reference.

    Attributes:
        prompt: the index of the prompt.
        at: the index of the token, which is also the length of the common prefix.
        expected: the reference's token; None if the reference ended before it.
        actual: the server's token; None if the answer ended before it, or it is not among the best tokens.
        gap: the log-probability of `expected` minus that of `actual`; infinite if either is None.
        near_tie: whether the dtype's noise explains the flip.
    """

    prompt: int
    at: int
    expected: Candidate | None
    actual: Candidate | None
    gap: float
    near_tie: bool


@dataclass(frozen=True)
class DtypeComparison:
    """The comparison of a server in one dtype with the reference in float32.

    Attributes:
        dtype: the server's dtype.
        prefixes: for each prompt, the lengths of the common prefix and of the reference's answer.
        flips: the first difference in each answer that differs.
        difference: how the log-probabilities of the text differ from the reference in float32.
        noise: how they differ without a server: the reference in the dtype compared with float32, or, if the
            dtype is float32, with float64.
    """

    dtype: str
    prefixes: tuple[tuple[int, int], ...]
    flips: tuple[Flip, ...]
    difference: LogprobSpread
    noise: LogprobSpread

    @property
    def same(self) -> int:
        """The number of prompts to which the server answered with the same tokens as the reference."""
        return len(self.prefixes) - len(self.flips)

    @property
    def verdict(self) -> Verdict:
        """`agrees` if differences are within the noise and all tokens are equal; `rounding` if noise flipped
        only near ties; else `wrong`."""
        if not self.difference.within(self.noise) or any(not flip.near_tie for flip in self.flips):
            return "wrong"
        return "rounding" if self.flips else "agrees"


def noise_reference(dtype: str) -> str:
    """The more exact dtype against which the noise of `dtype` is measured."""
    return "float64" if dtype == "float32" else "float32"


def compare(dtype: str, reference: Reference, answers: Answers) -> DtypeComparison:
    """Compares a server in one dtype with the reference."""
    noise = spread(reference.logprobs[dtype], reference.logprobs[noise_reference(dtype)])
    flips = []
    prefixes = []
    for number, (steps, tokens) in enumerate(zip(reference.greedy, answers.tokens, strict=True)):
        at = common_prefix([step[0].token for step in steps], tokens)
        prefixes.append((at, len(steps)))
        if at < max(len(steps), len(tokens)):
            flips.append(_flip(number, at, steps, tokens, noise))
    difference = spread(answers.logprobs, reference.logprobs["float32"])
    return DtypeComparison(dtype, tuple(prefixes), tuple(flips), difference, noise)


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """The length of the common prefix of two sequences."""
    for at, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return at
    return min(len(left), len(right))


def spread(left: Sequence[float], right: Sequence[float]) -> LogprobSpread:
    """The largest and the mean absolute difference; infinite if any difference is not a finite number."""
    differences = [abs(a - b) for a, b in zip(left, right, strict=True)]
    if not all(map(math.isfinite, differences)):
        return LogprobSpread(math.inf, math.inf)
    return LogprobSpread(max(differences), sum(differences) / len(differences))


def _flip(
    number: int, at: int, steps: Sequence[Sequence[Candidate]], tokens: Sequence[int], noise: LogprobSpread
) -> Flip:
    best = steps[at] if at < len(steps) else []
    expected = best[0] if best else None
    actual = next(
        (candidate for candidate in best if at < len(tokens) and candidate.token == tokens[at]), None
    )
    gap = expected.logprob - actual.logprob if expected and actual else math.inf
    return Flip(number, at, expected, actual, gap, gap <= NEAR_TIE * noise.largest)
