"""The search finds failures of vLLM's parsers with generated meanings, shrinks them and runs them again."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness._environments import Environment, resolve
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._exchange.delivery import deliveries
from vllm_harness._regression.cases.case import CaseInput, CaseSet
from vllm_harness._regression.cases.groups import GenerationPlan, case_set
from vllm_harness._regression.cases.meanings import load_meanings
from vllm_harness._regression.engines.in_process import InProcessError, parse_session
from vllm_harness._regression.engines.plan import plan_cases
from vllm_harness._regression.results.cells import Cell, RegressionRun
from vllm_harness._regression.run import run_batches, unfinished
from vllm_harness._scripted.families import load_families
from vllm_harness.extras.triage.search import SmallestFailure, search

pytestmark = [pytest.mark.vllm_slow, pytest.mark.timeout(600)]
HERMES = load_families()["hermes"]


@pytest.fixture(scope="module")
def environment() -> Environment:
    return resolve("0.32.0")


@pytest.fixture(scope="module")
def found(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> list[SmallestFailure]:
    return search(environment, [HERMES], GenerationPlan(200, 0), tmp_path_factory.mktemp("found") / "0.32.0")


def test_a_marker_in_a_string_is_found_and_shrunk(found: list[SmallestFailure]) -> None:
    lost = next(failure for failure in found if str(failure.mismatch) == "call_lost")
    (case,) = load_meanings(lost.file).cases
    assert lost.delivery.code == "whole"
    assert case.calls == ({"tool_a": {"p0": "</tool_call>"}},)


def test_a_failure_is_reproduced_from_its_file(
    environment: Environment, found: list[SmallestFailure], tmp_path: Path
) -> None:
    assert found
    run = RegressionRun(tmp_path / "run")
    for failure in found:
        cases = plan_cases(case_set("canonical", HERMES, load_meanings(failure.file)), "in-process")
        (cell,) = _cells(run, environment, cases)
        assert failure.mismatch in cell.cases[str(failure.mismatch)].mismatches[failure.delivery]


def test_a_family_is_searched_once(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "hermes").mkdir()
    searched: list[object] = []
    assert search(environment, [HERMES], GenerationPlan(5, 0), tmp_path, done=searched.append) == []
    assert searched == []


def test_an_interpreter_answers_until_its_timeout(environment: Environment) -> None:
    case = CaseInput(name="any", text="Hello.<|im_end|>", deliveries=deliveries("whole"))
    with parse_session(environment, limit_s=60) as parse:
        answers = (*parse(HERMES, [case]), *parse(HERMES, [case]))
        assert [answer.content for answer in answers] == ["Hello."] * 2
    with (
        pytest.raises(InProcessError, match="did not parse within"),
        parse_session(environment, limit_s=0.01) as parse,
    ):
        parse(HERMES, [case])


def _cells(run: RegressionRun, environment: Environment, cases: CaseSet) -> list[Cell]:
    batches = unfinished(run, [VllmUnderTest("0.32.0", environment)], [cases])
    assert not run_batches(run, batches, parallel=1, done=lambda _: None)
    return list(run.cells())
