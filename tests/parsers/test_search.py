"""Made up meanings against vLLM's own parsers: what is wrong is found, shrunk, and asked again."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness.environments import Environment, resolve
from vllm_harness.regression.cases.meanings import load_meanings
from vllm_harness.regression.cases.questions import Search
from vllm_harness.regression.cases.search import Found, search
from vllm_harness.regression.engines.in_process import Case, InProcessError, conversing
from vllm_harness.regression.results.results import Cell, Run
from vllm_harness.regression.run import Asked, Subject, jobs, work
from vllm_harness.scripted.families import load_families

pytestmark = [pytest.mark.vllm_slow, pytest.mark.timeout(600)]
HERMES = load_families()["hermes"]


@pytest.fixture(scope="module")
def environment() -> Environment:
    return resolve("0.32.0")


@pytest.fixture(scope="module")
def found(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    return search(environment, [HERMES], Search(200, 0), tmp_path_factory.mktemp("found") / "0.32.0")


def test_a_marker_in_a_string_is_found_and_shrunk(found: list[Found]) -> None:
    lost = next(one for one in found if one.wrong == "call lost")
    (case,) = load_meanings(lost.file).cases
    assert lost.way == "whole"
    assert case.calls == ({"tool_a": {"p0": "</tool_call>"}},)


def test_what_was_found_comes_again_from_its_file(
    environment: Environment, found: list[Found], tmp_path: Path
) -> None:
    assert found
    run = Run(tmp_path / "run")
    for one in found:
        asked = [Asked.of(HERMES, "canonical", load_meanings(one.file), "in-process")]
        (cell,) = _cells(run, environment, asked)
        assert one.wrong in cell.cases[one.wrong].wrong[one.way]


def test_a_family_that_was_searched_is_not_searched_again(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "hermes").mkdir()
    asked: list[object] = []
    assert search(environment, [HERMES], Search(5, 0), tmp_path, done=asked.append) == []
    assert asked == []


def test_an_interpreter_answers_until_its_time_is_up(environment: Environment) -> None:
    case = Case(name="any", text="Hello.<|im_end|>", ways=("whole",))
    with conversing(environment, limit_s=60) as ask:
        assert [one.content for one in (*ask(HERMES, [case]), *ask(HERMES, [case]))] == ["Hello."] * 2
    with (
        pytest.raises(InProcessError, match="did not parse within"),
        conversing(environment, limit_s=0.5) as ask,
    ):
        ask(HERMES, [case])


def _cells(run: Run, environment: Environment, asked: list[Asked]) -> list[Cell]:
    assert not work(run, jobs(run, [Subject("0.32.0", environment)], asked), parallel=1, done=lambda _: None)
    return list(run.cells())
