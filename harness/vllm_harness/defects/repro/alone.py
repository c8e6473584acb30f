"""A defect as two files that need vLLM alone: a report to file, and a script that shows it."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_harness.defects.entry import Defect
from vllm_harness.defects.repro.parser_cases import ServedCase
from vllm_harness.defects.repro.report import markdown, requests_of
from vllm_harness.defects.repro.run import Cost
from vllm_harness.defects.repro.script import StandAlone, script_of, stand_alone
from vllm_harness.defects.repro.verdict import Reproduction
from vllm_harness.extensions import COST_ALONE, load


@dataclass(frozen=True)
class Alone:
    """The files.

    Attributes:
        report: Markdown.
        script: Python; the report names it `reproduce.py`.
    """

    report: str
    script: str

    @classmethod
    def served(cls, defect: Defect, made: StandAlone, shown: Reproduction, environment: str) -> Alone:
        """The files of what a server shows."""
        report = markdown(defect, requests_of(made), shown.answers, environment)
        return cls(report, script_of(defect, made))


def alone(defect: Defect, case: ServedCase | Cost | None, shown: Reproduction, environment: str) -> Alone:
    """The files of a defect.

    Args:
        defect: with steps, or with a case.
        case: its case, where it has no steps.
        shown: the reproduction, which says in which case and delivery it showed.
        environment: the vLLM that showed it, in words.
    """
    if case is None or isinstance(case, ServedCase):
        return Alone.served(defect, stand_alone(defect, case, shown), shown, environment)
    files: Alone = load(COST_ALONE)(defect, case, shown, environment)
    return files
