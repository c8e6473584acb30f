"""What a reproduction comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from vllm_harness.protocol.core.events import Json

Verdict = Literal["reproduced", "fixed", "not applicable", "other failure"]


@dataclass(frozen=True)
class Reproduction:
    """What a defect's steps came to.

    Attributes:
        verdict: `reproduced`: the answer is as the entry says; `fixed`: it is right; `other failure`:
            neither; `not applicable`: this vLLM knows no such flag, parser or model.
        case, delivery: of parser regression, which showed it.
        why: a sentence, where there is no answer, or another one than either.
        answers: to the steps, as `repro.answer.document` has them; to a parser's case, as parser regression
            has them.
    """

    verdict: Verdict
    why: str = ""
    case: str = ""
    delivery: str = ""
    answers: list[Json] = field(default_factory=list)
