"""Measures the curves of a cell over HTTP, except those that an interrupted run has already stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from vllm_harness._configuration.model_entries import Frontend
from vllm_harness._defects.registry import load_defects
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._regression.cases.case import CaseSet, short_digest
from vllm_harness._regression.engines.answer import CaseAnswer
from vllm_harness._regression.results.cells import RegressionRun
from vllm_harness._regression.results.judge import cost_mismatches
from vllm_harness._regression.results.known_defects import ParserDefect, explaining_ids, parser_defects
from vllm_harness._regression.results.selections import Failure
from vllm_harness.extras.costs.curve_store import CurveStore, not_measured
from vllm_harness.extras.costs.over_http import measure_served


def measure_cell(run: RegressionRun, vllm: VllmUnderTest, cases: CaseSet) -> Iterator[CaseAnswer]:
    """Yields the stored curves of a cell, then measures the others and stores each at once.

    Raises:
        StartupError: the server does not start.
    """
    measured = short_digest([cases.digest, *(input_.cpu_s for input_ in cases.inputs)])
    store = CurveStore(run.curves_file(vllm.name, cases.family.name), measured)
    stored = store.read()
    store.start(stored)
    yield from stored
    if left := list(not_measured(cases.inputs, stored)):
        is_news = partial(has_unexplained_cost, parser_defects(load_defects()), cases, vllm.frontend)
        for answer in measure_served(vllm.environment, cases.family, left, is_news, frontend=vllm.frontend):
            store.add(answer)
            yield answer


def has_unexplained_cost(
    known: Iterable[ParserDefect], cases: CaseSet, frontend: Frontend, answer: CaseAnswer
) -> bool:
    """Whether the cost of an answer has a mismatch that no known defect explains."""
    (text,) = (input_.text for input_ in cases.inputs if input_.name == answer.case)
    assert answer.case is not None
    assert answer.delivery is not None
    failures = (
        Failure(cases.family.name, "cost", answer.case, answer.delivery, mismatch, frontend, text)
        for mismatch in cost_mismatches(answer)
    )
    return not all(explaining_ids(failure, known) for failure in failures)
