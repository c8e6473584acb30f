"""Stored cells of runs, baselines, and comparisons."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vllm_harness._environments.spec import Environment
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import UsageError
from vllm_harness._exchange.delivery import Delivery
from vllm_harness._regression.cases.case import Case, CaseInput, Expected, Topic
from vllm_harness._regression.cases.groups import case_set
from vllm_harness._regression.cases.meanings import load_meanings, renderable
from vllm_harness._regression.engines.answer import AnswerError, CaseAnswer, ErrorCode
from vllm_harness._regression.engines.in_process import InProcessError, by_case_set
from vllm_harness._regression.results.cells import (
    AnswersNotJudged,
    CaseResult,
    CaseVerdict,
    Cell,
    RegressionRun,
    raise_if_not_judged,
)
from vllm_harness._regression.results.compare import (
    against,
    baseline_of,
    changes,
    read_baseline,
    write_baseline,
)
from vllm_harness._regression.results.judge import judge
from vllm_harness._regression.results.mismatches import Mismatch
from vllm_harness._regression.run import cell_of
from vllm_harness._regression.selection import select_families
from vllm_harness._scripted.families import load_families
from vllm_harness.cli.main import app


def case_result(**fields: object) -> CaseResult:
    return CaseResult.model_validate({"topic": "calls", "text": "x", "deliveries": 9, **fields})


PASSED = case_result()
FAILED = case_result(mismatches={"tokens_1": ("call_lost",)})
MERGED = case_result(deliveries=0, not_held={"chat:tokens_1": "vLLM took [2]"})
FAILED_MORE = case_result(mismatches={"tokens_1": ("call_lost",), "whole": ("text_lost",)})


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
        cases_digest="abc",
        cases=cases,
    )


def test_a_finished_cell_is_reused_unless_its_cases_change(tmp_path: Path) -> None:
    run = RegressionRun(tmp_path)
    run.write(cell(call=PASSED))
    assert run.finished("0.32.0", "in-process", "hermes", "canonical", "abc")
    assert not run.finished("0.32.0", "in-process", "hermes", "canonical", "other")
    assert not run.finished("0.31.0", "in-process", "hermes", "canonical", "abc")
    assert list(run.cells()) == [cell(call=PASSED)]


def test_a_cell_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    run = RegressionRun(tmp_path)
    run.write(cell(call=PASSED))
    (file,) = tmp_path.glob("*/*/hermes.canonical.json")
    file.write_text(file.read_text().replace("{", '{"changed_alone": [["call", "chat:whole"]],', 1))
    assert list(run.cells()) == [cell(call=PASSED)]


def test_a_spec_with_slashes_stays_in_the_folder(tmp_path: Path) -> None:
    RegressionRun(tmp_path).write(cell("tree:/home/me/vllm@0.32.0"))
    assert len(list(tmp_path.glob("*/*/hermes.canonical.json"))) == 1


def test_the_errors_of_an_empty_run_and_a_malformed_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no regression results"):
        list(RegressionRun(tmp_path).cells())
    (tmp_path / "0.32.0" / "http").mkdir(parents=True)
    (tmp_path / "0.32.0" / "http" / "hermes.json").write_text("{}")
    with pytest.raises(UsageError, match=r"hermes\.json is not a results file"):
        list(RegressionRun(tmp_path).cells())


def test_changes_are_regressed_or_fixed() -> None:
    before, after = (
        cell(a=PASSED, b=FAILED, c=FAILED, d=PASSED),
        cell(a=FAILED, b=PASSED, c=FAILED_MORE, d=PASSED),
    )
    assert [(change.case, change.regressed) for change in changes([before], [after])] == [
        ("a", True),
        ("b", False),
        ("c", True),
    ]


def test_a_case_without_a_delivery_that_was_held_is_not_judged() -> None:
    assert MERGED.verdict is CaseVerdict.NOT_JUDGED
    partly = case_result(deliveries=1, not_held={"chat:tokens_1": "vLLM took [2]"})
    assert partly.verdict is CaseVerdict.PASSED
    assert changes([cell(a=FAILED, b=PASSED)], [cell(a=MERGED, b=MERGED)]) == []
    assert against(baseline_of("0.32.0", [cell(a=FAILED)]), [cell(a=MERGED)]) == []


@pytest.mark.parametrize("not_held_before", [True, False])
def test_changes_are_seen_only_in_deliveries_that_were_held_in_both_runs(not_held_before: bool) -> None:
    held = case_result(mismatches={"tokens_1": ("call_lost",)})
    merged = case_result(not_held={"tokens_1": "vLLM took [2]"})
    runs = (merged, held) if not_held_before else (held, merged)
    assert changes(*([cell(a=result)] for result in runs)) == []


def test_the_python_front_end_must_hold_every_delivery() -> None:
    rust = cell(a=MERGED).model_copy(update={"frontend": "rust"})
    raise_if_not_judged([rust, cell(a=PASSED, b=FAILED)])
    with pytest.raises(AnswersNotJudged, match="hermes, canonical, a, chat:tokens_1: vLLM took") as raised:
        raise_if_not_judged([rust, cell(a=MERGED)])
    assert raised.value.exit_code == 3


def test_a_merged_answer_is_no_mismatch() -> None:
    """Of two answers to a case, the one whose delivery was held is judged, and the other is kept apart."""
    set_ = case_set("canonical", load_families()["hermes"], load_meanings())
    case = next(case for case in set_.cases if case.name == "text")
    merged = AnswerError(code=ErrorCode.NOT_HELD, message="vLLM took [2]")
    answers = [
        CaseAnswer(
            family="hermes", case="text", delivery=Delivery.parse("chat:whole"), content="Hello there."
        ),
        CaseAnswer(family="hermes", case="text", delivery=Delivery.parse("chat:tokens_1"), error=merged),
    ]
    vllm = VllmUnderTest("0.32.0", Environment("installed", Path(sys.executable), "3", "0.32.0", "cpu", None))
    for kept, verdict in ((answers, CaseVerdict.PASSED), (answers[1:], CaseVerdict.NOT_JUDGED)):
        result = cell_of(vllm, replace(set_, cases=(case,), left_out={}), kept, engine="http").cases["text"]
        assert (result.verdict, result.mismatches) == (verdict, {})
        assert {each.code: why for each, why in result.not_held.items()} == {"chat:tokens_1": "vLLM took [2]"}


def test_parsers_that_the_harness_cannot_call_are_an_error_of_the_harness() -> None:
    line = '{"family": "hermes", "error": {"code": "NotDriven", "message": "no attribute parse"}}'
    with pytest.raises(InProcessError, match="no attribute parse") as raised:
        list(by_case_set([line]))
    assert raised.value.exit_code == 3


def test_only_failures_of_the_baseline_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "baseline.yaml"
    write_baseline(baseline_of("0.32.0", [cell(a=FAILED, b=PASSED)]), path)
    baseline = read_baseline(path)
    assert against(baseline, [cell(a=FAILED, b=PASSED)]) == []
    assert [change.regressed for change in against(baseline, [cell(a=FAILED_MORE, b=PASSED)])] == [True]
    assert [change.regressed for change in against(baseline, [cell(a=PASSED, b=PASSED)])] == [False]
    assert [change.regressed for change in against(baseline, [cell(a=FAILED, b=FAILED)])] == [True]


def test_parsers_that_cannot_be_made_are_a_regression() -> None:
    not_made = cell().model_copy(update={"start_error": "KeyError: no"})
    assert [change.regressed for change in changes([cell(a=PASSED)], [not_made])] == [True]
    assert [change.regressed for change in against(baseline_of("0.32.0", [cell(a=FAILED)]), [not_made])] == [
        True
    ]


def test_groups_that_the_baseline_lacks_are_not_compared() -> None:
    baseline = baseline_of("0.32.0", [cell(a=PASSED)])
    other = cell(a=FAILED).model_copy(update={"group": "chunks"})
    assert against(baseline, [other]) == []
    assert baseline_of("0.32.0", [cell().model_copy(update={"start_error": "no"})]).covers == {}


@pytest.mark.parametrize("text", ["", "vllm: 0.32.0", "[", "vllm: x\nmismatches: {a: 1}"])
def test_the_error_of_a_malformed_baseline(text: str, tmp_path: Path) -> None:
    path = tmp_path / "baseline.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match="is not a valid baseline"):
        read_baseline(path)


def test_compare_exits_with_1_after_a_regression(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    RegressionRun(before).write(cell(a=PASSED))
    RegressionRun(after).write(cell(a=FAILED))
    regressed = CliRunner().invoke(app, ["compare", str(before), str(after)])
    assert regressed.exit_code == 1
    assert "call_lost: a call is lost" in regressed.stdout
    fixed = CliRunner().invoke(app, ["compare", str(after), str(before)])
    assert fixed.exit_code == 0


def test_an_unknown_model_is_rejected() -> None:
    with pytest.raises(UsageError, match="unknown model"):
        select_families("", "no-such-model")


def test_models_select_the_families_with_their_parsers() -> None:
    assert "qwen3_thinking" in [family.name for family in select_families("", "qwen3")]
    assert [family.name for family in select_families("", "gpt-oss,llama3.1")] == [
        "openai",
        "llama3_json",
    ]
    both = select_families("hermes,longcat", "hermes3,qwen3")
    assert len(both) == len({family.name for family in both})
    assert {"hermes", "hermes_special", "longcat", "qwen3_thinking"} <= {family.name for family in both}
    assert [family.name for family in select_families("", "")] == list(load_families())


def test_every_family_renders_meanings_or_has_a_reason() -> None:
    meanings = load_meanings()
    assert len(meanings.cases) >= 40
    for family in load_families().values():
        cases, left_out = renderable(family, meanings)
        assert len(cases) + len(left_out) == len(meanings.cases)
        assert len(cases) >= 5, family.name
        assert all(left_out.values())


def test_under_load_only_changed_answers_are_mismatches() -> None:
    case = Case(CaseInput(name="any", text="Hm.</think>Hello."), Topic.LOAD, Expected())
    alone = CaseAnswer(
        family="any",
        case="any",
        delivery=Delivery.parse("chat:whole:alone"),
        reasoning="Hm.",
        content="Hello.",
        counted_reasoning=0,
    )
    together = alone.model_copy(update={"delivery": Delivery.parse("chat:whole:together")})
    truncated = together.model_copy(update={"content": "Hel"})
    found = [mismatches for _, mismatches in judge(case, [alone, together, truncated])]
    assert found[1:] == [(), (Mismatch.parse("text_cut"),)]
