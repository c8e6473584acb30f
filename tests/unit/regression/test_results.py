"""Runs kept cell by cell, and compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from vllm_harness.cli.main import app
from vllm_harness.cli.regression import families_asked
from vllm_harness.errors import UsageError
from vllm_harness.regression.cases.meanings import load_meanings, sayable
from vllm_harness.regression.cases.questions import Question
from vllm_harness.regression.engines.in_process import Case, Parsed
from vllm_harness.regression.results.compare import (
    against,
    baseline_of,
    changes,
    disagreements,
    read_baseline,
    write_baseline,
)
from vllm_harness.regression.results.results import CaseResult, Cell, Run
from vllm_harness.regression.run import wrongs
from vllm_harness.scripted.families import load_families

RIGHT = CaseResult(topic="calls", text="x", ways=9)
WRONG = CaseResult(topic="calls", text="x", ways=9, wrong={"1": ("call lost",)})
WORSE = CaseResult(topic="calls", text="x", ways=9, wrong={"1": ("call lost",), "whole": ("text lost",)})


def cell(environment: str = "0.32.0", **cases: CaseResult) -> Cell:
    return Cell(
        environment=environment,
        described=environment,
        family="hermes",
        tool_parser="hermes",
        reasoning_parser=None,
        group="canonical",
        tokenizer="synthetic",
        engine="in-process",
        asked="abc",
        cases=cases,
    )


def test_a_finished_cell_is_found_again_unless_other_cases_are_asked(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.write(cell(call=RIGHT))
    assert run.finished("0.32.0", "in-process", "hermes", "canonical", "abc")
    assert not run.finished("0.32.0", "in-process", "hermes", "canonical", "other")
    assert not run.finished("0.31.0", "in-process", "hermes", "canonical", "abc")
    assert list(run.cells()) == [cell(call=RIGHT)]


def test_a_spec_with_slashes_stays_in_the_folder(tmp_path: Path) -> None:
    Run(tmp_path).write(cell("tree:/home/me/vllm@0.32.0"))
    assert len(list(tmp_path.glob("*/*/hermes.canonical.json"))) == 1


def test_an_empty_run_and_a_broken_cell_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no cells"):
        list(Run(tmp_path).cells())
    (tmp_path / "0.32.0" / "http").mkdir(parents=True)
    (tmp_path / "0.32.0" / "http" / "hermes.json").write_text("{}")
    with pytest.raises(UsageError, match=r"hermes\.json is no cell"):
        list(Run(tmp_path).cells())


def test_changes_know_worse_from_better() -> None:
    before, after = cell(a=RIGHT, b=WRONG, c=WRONG, d=RIGHT), cell(a=WRONG, b=RIGHT, c=WORSE, d=RIGHT)
    assert [(change.case, change.worse) for change in changes([before], [after])] == [
        ("a", True),
        ("b", False),
        ("c", True),
    ]


def test_a_baseline_forgives_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "baseline.yaml"
    write_baseline(baseline_of("0.32.0", [cell(a=WRONG, b=RIGHT)]), path)
    baseline = read_baseline(path)
    assert against(baseline, [cell(a=WRONG, b=RIGHT)]) == []
    assert [change.worse for change in against(baseline, [cell(a=WORSE, b=RIGHT)])] == [True]
    assert [change.worse for change in against(baseline, [cell(a=RIGHT, b=RIGHT)])] == [False]
    assert [change.worse for change in against(baseline, [cell(a=WRONG, b=WRONG)])] == [True]


def test_engines_are_compared_answer_by_answer() -> None:
    parsed = CaseResult(topic="calls", came={"whole": "a", "1": "b", "1+end": "c"})
    served = CaseResult(
        topic="calls",
        came={"chat": "a", "chat stream": "c", "responses": "z"},
        wrong={"responses": ("call lost",)},
    )
    over_http = cell(call=served).model_copy(update={"engine": "http"})
    compared, found = disagreements([cell(call=parsed), over_http])
    assert compared == 3
    assert [(one.case, one.way, one.in_process, one.http) for one in found] == [
        ("call", "responses", (), ("call lost",))
    ]


def test_parsers_that_cannot_be_made_are_worse_than_anything() -> None:
    refused = cell().model_copy(update={"refused": "KeyError: no"})
    assert [change.worse for change in changes([cell(a=RIGHT)], [refused])] == [True]
    assert [change.worse for change in against(baseline_of("0.32.0", [cell(a=WRONG)]), [refused])] == [True]


def test_a_baseline_says_nothing_of_what_it_was_not_asked() -> None:
    baseline = baseline_of("0.32.0", [cell(a=RIGHT)])
    other = cell(a=WRONG).model_copy(update={"group": "chunks"})
    assert against(baseline, [other]) == []
    assert baseline_of("0.32.0", [cell().model_copy(update={"refused": "no"})]).covers == {}


@pytest.mark.parametrize("text", ["", "vllm: 0.32.0", "[", "vllm: x\nwrong: {a: 1}"])
def test_no_baseline_is_a_wrong_use(text: str, tmp_path: Path) -> None:
    path = tmp_path / "baseline.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match="is no baseline"):
        read_baseline(path)


def test_diff_exits_by_what_is_worse(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    Run(one).write(cell(a=RIGHT))
    Run(other).write(cell(a=WRONG))
    worse = CliRunner().invoke(app, ["matrix", "diff", str(one), str(other)])
    assert worse.exit_code == 1
    assert "call lost" in worse.stdout
    better = CliRunner().invoke(app, ["matrix", "diff", str(other), str(one)])
    assert better.exit_code == 0


@pytest.mark.parametrize(
    ("models", "told"),
    [
        ("no-such-model", "unknown model"),
        ("gpt-oss", "not driven in process"),
    ],
)
def test_a_model_that_cannot_be_asked_is_a_wrong_use(models: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        families_asked("", models, "in-process")


def test_models_are_asked_through_the_families_with_their_parsers() -> None:
    assert [family.name for family in families_asked("", "qwen3", "in-process")] == ["qwen3_thinking"]
    assert [family.name for family in families_asked("", "gpt-oss,llama3.1", "http")] == [
        "openai",
        "llama3_json",
    ]
    both = families_asked("hermes,longcat", "hermes3,qwen3", "http")
    assert len(both) == len({family.name for family in both})
    assert {"hermes", "hermes_special", "longcat", "qwen3_thinking"} <= {family.name for family in both}
    assert [family.name for family in families_asked("", "", "http")] == list(load_families())


def test_every_family_says_some_meanings_and_gives_reasons_for_the_others() -> None:
    meanings = load_meanings()
    assert len(meanings.cases) >= 40
    for family in load_families().values():
        cases, left_out = sayable(family, meanings)
        assert len(cases) + len(left_out) == len(meanings.cases)
        assert len(cases) >= 5, family.name
        assert all(left_out.values())


def test_under_load_only_what_load_changes_is_wrong() -> None:
    case = Case(name="any", text="Hm.</think>Hello.", ways=("chat",))
    alone = Parsed(family="any", case="any", way="chat, alone", reasoning="Hm.", content="Hello.", thought=0)
    together = alone.model_copy(update={"way": "chat, together"})
    cut = together.model_copy(update={"content": "Hel"})
    question = Question(case, "load", None)
    assert [kinds for _, kinds in wrongs(question, [alone, together, cut])][1:] == [(), ("text cut",)]
