"""The comparison of a server's numbers with the reference's: rounding, or a wrong kernel. Pure functions.

The limits are multiples of the noise, which is what a dtype makes of the reference itself; a server adds its
own order of the same sums. Measured with SmolLM2-135M-Instruct on vLLM 0.32.0, CPU with AVX-512:

    dtype      largest difference   mean difference   widest flip
    float32                   0.9               0.7             -
    bfloat16                  1.7               1.1           0.9
    float16                   1.5               1.0           0.1

Each limit is about twice the largest figure of its column. The mean, over 217 tokens, is the steadier one,
so its limit is tighter. One matrix of layer 15 stored backwards is at 12 and 15 in bfloat16; the last bits of
its values turned over (under one percent each) are at 370 and 170 in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vllm_harness.files.strict import StrictModel

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
    """What a server gave: the tokens said to each prompt, and the text's log-probabilities."""

    said: list[list[int]]
    logprobs: list[float]


@dataclass(frozen=True)
class Spread:
    """Absolute differences of log-probabilities, in nats."""

    largest: float
    mean: float

    def within(self, other: Spread) -> bool:
        """Whether neither figure is beyond its limit, `other` being the noise."""
        return self.largest <= LARGEST * other.largest and self.mean <= MEAN * other.mean


@dataclass(frozen=True)
class Flip:
    """The first token of a prompt's answer that is not the reference's.

    Attributes:
        prompt: number of the prompt, from 0.
        at: number of the token, from 0: the length of the common prefix.
        expected: the reference's token.
        got: the server's token; None where it said nothing more, or one that is not among the best.
        gap: how much likelier the reference holds its own; infinite where `got` is None.
        near_tie: whether the dtype's noise explains it.
    """

    prompt: int
    at: int
    expected: Candidate | None
    got: Candidate | None
    gap: float
    near_tie: bool


@dataclass(frozen=True)
class DtypeComparison:
    """A server in one dtype against the reference in float32.

    Attributes:
        dtype: the server's.
        prefixes: for each prompt the tokens in common from the start, and the reference's in all.
        flips: where answers part.
        difference: of the text's log-probabilities, from the reference in float32.
        noise: what the dtype itself makes of them, without a server: the reference in that dtype against
            float32, and in float32 against float64.
    """

    dtype: str
    prefixes: tuple[tuple[int, int], ...]
    flips: tuple[Flip, ...]
    difference: Spread
    noise: Spread

    @property
    def same(self) -> int:
        """Prompts that were answered token by token as the reference does."""
        return len(self.prefixes) - len(self.flips)

    @property
    def verdict(self) -> Verdict:
        """`agrees`: no more than noise, and every token the same; `rounding`: noise that flipped near ties;
        `wrong`: beyond noise."""
        if not self.difference.within(self.noise) or any(not flip.near_tie for flip in self.flips):
            return "wrong"
        return "rounding" if self.flips else "agrees"


def noise_reference(dtype: str) -> str:
    """The dtype that tells the noise of `dtype`: one more exact."""
    return "float64" if dtype == "float32" else "float32"


def compare(dtype: str, reference: Reference, answers: Answers) -> DtypeComparison:
    """Compares a server in one dtype with the reference."""
    noise = spread(reference.logprobs[dtype], reference.logprobs[noise_reference(dtype)])
    flips = []
    prefixes = []
    for number, (steps, said) in enumerate(zip(reference.greedy, answers.said, strict=True)):
        at = common_prefix([step[0].token for step in steps], said)
        prefixes.append((at, len(steps)))
        if at < max(len(steps), len(said)):
            flips.append(_flip(number, at, steps, said, noise))
    difference = spread(answers.logprobs, reference.logprobs["float32"])
    return DtypeComparison(dtype, tuple(prefixes), tuple(flips), difference, noise)


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens from the start are the same."""
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))


def spread(one: Sequence[float], other: Sequence[float]) -> Spread:
    """The largest and the mean difference; infinite where either side is not a number."""
    differences = [abs(left - right) for left, right in zip(one, other, strict=True)]
    if not all(map(math.isfinite, differences)):
        return Spread(math.inf, math.inf)
    return Spread(max(differences), sum(differences) / len(differences))


def _flip(
    number: int, at: int, steps: Sequence[Sequence[Candidate]], said: Sequence[int], noise: Spread
) -> Flip:
    best = steps[at] if at < len(steps) else []
    expected = best[0] if best else None
    got = next((each for each in best if at < len(said) and each.token == said[at]), None)
    gap = expected.logprob - got.logprob if expected and got else math.inf
    return Flip(number, at, expected, got, gap, gap <= NEAR_TIE * noise.largest)
