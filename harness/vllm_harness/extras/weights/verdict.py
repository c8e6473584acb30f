"""The comparison of a server's numbers with the reference's: rounding, or a wrong kernel. Pure functions.

The limits are multiples of the noise, which is the effect of a dtype on the reference itself; a server adds
its own order of the same sums. Measured with SmolLM2-135M-Instruct on vLLM 0.32.0, CPU with AVX-512:

    dtype      largest difference   mean difference   widest flip
    float32                   0.9               0.7             -
    bfloat16                  1.7               1.1           0.9
    float16                   1.5               1.0           0.1

Each limit is about twice the largest figure of its column. The mean, over 217 tokens, varies less,
so its limit is tighter. One matrix of layer 15 stored backwards is at 12 and 15 in bfloat16; the last bits of
its values turned over (under one percent each) are at 370 and 170 in float32.
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
    """One of the best tokens at a step."""

    token: int
    logprob: float
    text: str


class Reference(StrictModel):
    """What transformers computes.

    Attributes:
        prompts: token ids of each prompt.
        text: token ids of the fixed text.
        greedy: for each prompt the greedy steps in float32; the best tokens of a step, the taken one first.
        logprobs: for each dtype the log-probability of every token of the text after the first.
    """

    prompts: list[list[int]]
    text: list[int]
    greedy: list[list[list[Candidate]]]
    logprobs: dict[str, list[float]]


@dataclass(frozen=True)
class Answers:
    """A server's answers: the tokens for each prompt, and the log-probabilities of the text."""

    tokens: list[list[int]]
    logprobs: list[float]


@dataclass(frozen=True)
class LogprobSpread:
    """Absolute differences of log-probabilities, in nats."""

    largest: float
    mean: float

    def within(self, other: LogprobSpread) -> bool:
        """Whether neither figure is beyond its limit, `other` being the noise."""
        return self.largest <= LARGEST * other.largest and self.mean <= MEAN * other.mean


@dataclass(frozen=True)
class Flip:
    """The first token of a prompt's answer that is not the reference's.

    Attributes:
        prompt: number of the prompt, from 0.
        at: number of the token, from 0: the length of the common prefix.
        expected: the reference's token.
        actual: the server's token; None where it ended, or where the token is not among the best.
        gap: how much likelier its own token is to the reference; infinite where `actual` is None.
        near_tie: whether the dtype's noise explains it.
    """

    prompt: int
    at: int
    expected: Candidate | None
    actual: Candidate | None
    gap: float
    near_tie: bool


@dataclass(frozen=True)
class DtypeComparison:
    """A server in one dtype against the reference in float32.

    Attributes:
        dtype: the server's.
        prefixes: for each prompt the tokens in common from the start, and the reference's in all.
        flips: where answers begin to differ.
        difference: of the text's log-probabilities, from the reference in float32.
        noise: the effect of the dtype on them, without a server: the reference in that dtype against
            float32, and in float32 against float64.
    """

    dtype: str
    prefixes: tuple[tuple[int, int], ...]
    flips: tuple[Flip, ...]
    difference: LogprobSpread
    noise: LogprobSpread

    @property
    def same(self) -> int:
        """Number of prompts whose answer has the same tokens as the reference's."""
        return len(self.prefixes) - len(self.flips)

    @property
    def verdict(self) -> Verdict:
        """`agrees`: no more than noise, and every token the same; `rounding`: noise that flipped near ties;
        `wrong`: beyond noise."""
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
    """The number of tokens from the start that are the same."""
    for at, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return at
    return min(len(left), len(right))


def spread(left: Sequence[float], right: Sequence[float]) -> LogprobSpread:
    """The largest and the mean difference; infinite where a value is not a finite number."""
    differences = [abs(a - b) for a, b in zip(left, right, strict=True)]
    if not all(map(math.isfinite, differences)):
        return LogprobSpread(math.inf, math.inf)
    return LogprobSpread(max(differences), sum(differences) / len(differences))


def _flip(
    number: int, at: int, steps: Sequence[Sequence[Candidate]], tokens: Sequence[int], noise: LogprobSpread
) -> Flip:
    best = steps[at] if at < len(steps) else []
    expected = best[0] if best else None
    actual = next((each for each in best if at < len(tokens) and each.token == tokens[at]), None)
    gap = expected.logprob - actual.logprob if expected and actual else math.inf
    return Flip(number, at, expected, actual, gap, gap <= NEAR_TIE * noise.largest)
