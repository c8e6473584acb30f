"""Measures the cost of parsing growing answers in process, without a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from vllm_harness._environments.spec import Environment
from vllm_harness._regression.cases.case import CaseInput
from vllm_harness._regression.engines.answer import CaseAnswer
from vllm_harness._regression.engines.in_process import WORKERS, by_case_set, lines_of, worker_family
from vllm_harness._scripted.families import Family

DEADLINE_S = 1.0
"""The CPU time that one answer may take in one delivery, in seconds, over all its lengths."""
START_S = 600.0
_SCRIPT = Path(__file__).with_name("workers") / "vllm_harness_cost.py"


def measure_all(
    environment: Environment, case_sets: Sequence[tuple[Family, Sequence[CaseInput]]]
) -> Iterator[list[CaseAnswer]]:
    """Measures the growing answers of each family, and yields the curves of each case set in turn.

    Args:
        environment: the environment whose parsers are measured.
        case_sets: the families, each with the inputs of its cases.

    Raises:
        InProcessError: vLLM cannot be imported, or takes several times longer than the deadlines allow.
    """
    families = [worker_family(family, inputs) for family, inputs in case_sets]
    curves = sum(len(input_.deliveries) for _, inputs in case_sets for input_ in inputs)
    document = {"families": families, "deadline_s": DEADLINE_S}
    limit_s = START_S + 5 * DEADLINE_S * curves
    yield from by_case_set(lines_of(environment, (str(_SCRIPT), str(WORKERS)), document, limit_s=limit_s))
