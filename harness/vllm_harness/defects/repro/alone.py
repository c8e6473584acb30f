"""A defect as two files that need vLLM alone: a report to file, and a script that shows it."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_harness.defects.entry import Defect
from vllm_harness.defects.repro.cost_script import ParsersAlone, cost_alone, cost_script_of
from vllm_harness.defects.repro.costs import CostCase
from vllm_harness.defects.repro.parser_cases import ServedCase
from vllm_harness.defects.repro.report import markdown
from vllm_harness.defects.repro.script import script_of, stand_alone
from vllm_harness.defects.repro.verdict import Reproduction


@dataclass(frozen=True)
class Alone:
    """The files.

    Attributes:
        report: Markdown.
        script: Python; the report names it `reproduce.py`.
    """

    report: str
    script: str


def alone(defect: Defect, case: ServedCase | CostCase | None, shown: Reproduction, environment: str) -> Alone:
    """The files of a defect.

    Args:
        defect: with steps, or with a case.
        case: its case, where it has no steps.
        shown: the reproduction, which says in which case and delivery it showed.
        environment: the vLLM that showed it, in words.
    """
    made = cost_alone(case, shown) if isinstance(case, CostCase) else stand_alone(defect, case, shown)
    script = cost_script_of(defect, made) if isinstance(made, ParsersAlone) else script_of(defect, made)
    return Alone(markdown(defect, made, shown.answers, environment), script)
