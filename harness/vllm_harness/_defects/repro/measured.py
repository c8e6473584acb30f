"""The verdict on one defect in one vLLM environment, and whether it agrees with the entry."""

from __future__ import annotations

from dataclasses import asdict

from pydantic import Field

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.repro.verdict import Reproduction, Verdict
from vllm_harness._files.strict import StrictModel
from vllm_harness._protocol.core.events import Json


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
