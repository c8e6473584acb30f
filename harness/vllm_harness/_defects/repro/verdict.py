"""The results of reproductions, and how answers decide them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from vllm_harness._protocol.core.events import Json

Verdict = Literal["reproduced", "fixed", "not applicable", "other failure"]


@dataclass(frozen=True)
class Reproduction:
    """The result of an attempt to reproduce a defect.

    Attributes:
        verdict: `reproduced`: the answer is wrong as the entry says; `fixed`: it is right; `other failure`:
            neither; `not applicable`: this vLLM lacks the flag, the parser or the model.
        why: a sentence that explains `not applicable` or `other failure`.
        case, delivery: the test case and the delivery of parser regression that showed it.
        answers: the answers to the steps, as of `repro.steps.document`, or to a parser's test case, as in
            parser regression.
    """

    verdict: Verdict
    why: str = ""
    case: str = ""
    delivery: str = ""
    answers: list[Json] = field(default_factory=list)


@dataclass(frozen=True)
class Sign:
    """What an answer, or all answers to the steps together, say about a defect.

    Attributes:
        shows: whether it is wrong as the entry says.
        is_right: whether it is right where the defect could show.
        faults: what else is wrong with it.
        lacking: what this vLLM lacks, so that the answer decides nothing.
        case, delivery: the test case and the delivery of parser regression, if any.
        answers: the answers to keep if it shows the defect; empty: all.
    """

    shows: bool = False
    is_right: bool = False
    faults: tuple[str, ...] = ()
    lacking: str = ""
    case: str = ""
    delivery: str = ""
    answers: tuple[Json, ...] = ()


def reproduction_of(signs: Iterable[Sign], answers: list[Json]) -> Reproduction:
    """Derives the verdict; the first sign that shows the defect decides.

    Without one, the defect is fixed if an answer that could show it is right: faults of the others are then
    other defects.

    Args:
        signs: the signs of the answers, in order.
        answers: the answers to keep if no sign shows the defect.
    """
    faults: dict[str, None] = {}
    is_right = False
    for sign in signs:
        if sign.shows:
            kept = list(sign.answers) or answers
            return Reproduction("reproduced", case=sign.case, delivery=sign.delivery, answers=kept)
        if sign.lacking:
            return Reproduction("not applicable", sign.lacking, answers=answers)
        faults |= dict.fromkeys(sign.faults)
        is_right |= sign.is_right
    if is_right or not faults:
        return Reproduction("fixed", answers=answers)
    return Reproduction("other failure", ", ".join(faults), answers=answers)
