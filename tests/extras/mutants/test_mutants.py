"""Mutants of vLLM's parsers: which are killed; the driver by itself changes no result."""

from __future__ import annotations

import pytest

from vllm_harness._environments import Environment, resolve
from vllm_harness._regression.cases.groups import case_set
from vllm_harness._regression.cases.meanings import load_meanings
from vllm_harness._regression.engines.plan import plan_cases
from vllm_harness._scripted.families import load_families
from vllm_harness._terminal.status import quiet
from vllm_harness.extras.mutants.parsers.mutants import Mutant, MutantResult, judge_mutants, make_mutants
from vllm_harness.extras.mutants.parsers.mutants_over_http import judge_over_http

pytestmark = [pytest.mark.vllm_slow, pytest.mark.timeout(600)]

FILE = "tool_parsers/hermes_tool_parser.py"


@pytest.fixture(scope="module")
def environment() -> Environment:
    return resolve("0.32.0")


@pytest.fixture(scope="module")
def made(environment: Environment) -> list[Mutant]:
    return make_mutants(environment, FILE, quiet)


def test_mutants_are_distinct(made: list[Mutant]) -> None:
    assert len(made) > 100
    assert len({mutant.code for mutant in made}) == len(made)
    assert all(mutant.line and mutant.change for mutant in made)


def test_a_sample_is_the_same_every_time(environment: Environment, made: list[Mutant]) -> None:
    sample = make_mutants(environment, FILE, quiet, sample=5, seed=7)
    assert sample == make_mutants(environment, FILE, quiet, sample=5, seed=7)
    assert len(sample) == 5
    assert all(mutant in made for mutant in sample)


def test_broken_parsers_are_killed_and_the_unchanged_file_survives(
    environment: Environment, made: list[Mutant]
) -> None:
    assert environment.package is not None
    code = (environment.package / FILE).read_text()
    same = made[0].model_copy(update={"code": code, "statement": None})
    broken = same.model_copy(update={"code": code.replace("<tool_call>", "<tool_cell>")})
    unimportable = same.model_copy(update={"code": "import no_such_module\n"})
    cases = plan_cases(case_set("canonical", load_families()["hermes"], load_meanings()), "in-process")
    results = judge_mutants(environment, FILE, [same, broken, unimportable], [cases], most=5)
    statuses = {result.mutant.code: result.status for result in results}
    assert statuses == {same.code: "survived", broken.code: "killed", unimportable.code: "killed"}


def test_a_server_runs_survivors(environment: Environment, made: list[Mutant]) -> None:
    assert environment.package is not None
    code = (environment.package / FILE).read_text()
    same = MutantResult(mutant=made[0].model_copy(update={"code": code}), status="survived")
    without_content = code.replace("content=content if content else None", "content=None")
    broken = MutantResult(mutant=made[0].model_copy(update={"code": without_content}), status="survived")
    cases = plan_cases(case_set("canonical", load_families()["hermes"], load_meanings()), "http")
    results = judge_over_http(environment, FILE, [same, broken], [cases.only(["text and call"])])
    assert [(result.status, result.by, result.served) for result in results] == [
        ("survived", "", True),
        ("killed", "hermes, canonical, text and call", True),
    ]
