"""The results of reproductions: how they are derived from answers, and whether they agree with the entry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Literal

from pydantic import Field

from vllm_harness._defects.entry import Defect
from vllm_harness._extensions import CURVE_TABLE, load
from vllm_harness._files.strict import StrictModel
from vllm_harness._protocol.core.events import Json

Verdict = Literal["reproduced", "fixed", "not applicable", "other failure"]


@dataclass(frozen=True)
class Reproduction:
    """The result of an attempt to reproduce a defect.

    Attributes:
        verdict: `reproduced`: the answer is wrong as the entry describes; `fixed`: it is right; `other
            failure`: neither; `not applicable`: this vLLM lacks the flag, the parser or the model.
        why: a sentence that explains `not applicable` or `other failure`.
        case, delivery: the parser regression test case and delivery that showed it, if any.
        answers: the answers to the steps, converted by `repro.steps.document`, or to a parser's test case,
            in the form that parser regression stores.
    """

    verdict: Verdict
    why: str = ""
    case: str = ""
    delivery: str = ""
    answers: list[Json] = field(default_factory=list)


@dataclass(frozen=True)
class Sign:
    """What an answer, or the answers to all steps together, show about a defect.

    Attributes:
        shows: whether the answer is wrong in the way that the entry describes.
        is_right: whether the answer is right although the defect could have shown in it.
        faults: what else is wrong with the answer.
        lacking: what this vLLM lacks, so that the answer decides nothing; empty if it lacks nothing.
        case, delivery: the parser regression test case and delivery, if any.
        answers: the answers to keep if they show the defect; if empty, all are kept.
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

    If none does, the defect is fixed if an answer that could have shown it is right; faults in other answers
    then belong to other defects.

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


def curve_table(answer: Json) -> Iterator[str]:
    """Yields the lines of a table of an answer's cost curve, if it has one."""
    if "curve" in answer:
        yield from load(CURVE_TABLE, "a curve")(answer)


class Measured(StrictModel):
    """The verdict on one defect in one vLLM environment.

    Attributes:
        id: the id of the defect.
        vllm: the environment, as a value of `--vllm`.
        version: the version of vLLM.
        verdict, why, case, delivery, answers: as in `Reproduction`.
    """

    id: str
    vllm: str
    version: str
    verdict: Verdict
    why: str = ""
    case: str = ""
    delivery: str = ""
    answers: list[Json] = Field(default_factory=list)

    @classmethod
    def of(cls, defect: str, vllm: str, version: str, outcome: Reproduction) -> Measured:
        """Makes a `Measured` from a reproduction, the defect and the environment."""
        return cls(id=defect, vllm=vllm, version=version, **asdict(outcome))

    @property
    def outcome(self) -> Reproduction:
        """The verdict as a `Reproduction`."""
        return Reproduction(self.verdict, self.why, self.case, self.delivery, self.answers)


def agrees(defect: Defect, measured: Measured) -> bool:
    """Whether a verdict agrees with the versions of the entry."""
    return measured.verdict in ("not applicable", expected_verdict(defect, measured.version))


def expected_verdict(defect: Defect, version: str) -> Verdict:
    """The verdict that an entry implies for a version."""
    return "reproduced" if defect.holds_for(version) else "fixed"
