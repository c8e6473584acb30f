"""What a reproduction comes to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from vllm_harness._protocol.core.events import Json

Verdict = Literal["reproduced", "fixed", "not applicable", "other failure"]


@dataclass(frozen=True)
class Reproduction:
    """What came of an attempt to reproduce a defect.

    Attributes:
        verdict: `reproduced`: the answer is as the entry says; `fixed`: it is right; `other failure`:
            neither; `not applicable`: this vLLM knows no such flag, parser or model.
        case, delivery: of parser regression, which showed it.
        why: a sentence, where there is no answer, or another one than either.
        answers: to the steps, as `repro.steps.document` has them; to a parser's case, as parser regression
            has them.
    """

    verdict: Verdict
    why: str = ""
    case: str = ""
    delivery: str = ""
    answers: list[Json] = field(default_factory=list)


@dataclass(frozen=True)
class Sign:
    """What one answer, or the answers to all steps together, say of a defect.

    Attributes:
        shows: whether it is as the entry says.
        is_right: whether it is right where the defect might have shown.
        faults: what else is wrong with it.
        lacking: what this vLLM lacks, so that the answer decides nothing.
        case, delivery: of parser regression, where the answer has them.
        answers: to keep where it shows the defect; none: all of them.
    """

    shows: bool = False
    is_right: bool = False
    faults: tuple[str, ...] = ()
    lacking: str = ""
    case: str = ""
    delivery: str = ""
    answers: tuple[Json, ...] = ()


def reproduction_of(signs: Iterable[Sign], answers: list[Json]) -> Reproduction:
    """The verdict: the first sign that shows the defect decides.

    Without one, the defect is fixed if an answer in which it might have shown is right: what is wrong with
    the others is another defect.

    Args:
        signs: of the answers, in order.
        answers: to keep where no sign shows the defect.
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
