"""Tests the files of a reproduction: script, report, export, and the draft of a defect entry."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import load_defects
from vllm_harness._defects.repro.parser_cases import ServedCase
from vllm_harness._defects.repro.reproducer import checked, is_reproducible, reproducer_of
from vllm_harness._defects.repro.steps import filled
from vllm_harness._defects.repro.verdict import Measured, Reproduction
from vllm_harness._errors import UsageError
from vllm_harness._regression.results.cells import Cell, RegressionRun
from vllm_harness.extras.triage.draft import as_yaml, from_capture, from_cell, from_test
from vllm_harness.extras.triage.export import export
from vllm_harness.extras.triage.files import files_of
from vllm_harness.extras.triage.standalone import reproduce

REPRODUCIBLE = [defect for defect in load_defects().values() if is_reproducible(defect)]
REQUESTED = [each for each in REPRODUCIBLE if each.repro or isinstance(reproducer_of(each), ServedCase)]
ONE_OF_EACH = {(each.repro and each.repro.model, each.families[:1]): each for each in REQUESTED}.values()


def shown(defect: Defect) -> Reproduction:
    """Returns a reproduction, if possible with the first test case in its last delivery."""
    if defect.repro:
        return Reproduction("reproduced", answers=[{"status": 200, "body": {"id": "````"}}])
    found = reproducer_of(defect)
    assert isinstance(found, ServedCase)
    return Reproduction("reproduced", case=found.cases[0].name, delivery=found.deliveries[-1].code)


def constants_of(script: str) -> dict[str, Any]:
    """Returns the constants in a script; checks that it names neither the harness nor the home folder."""
    tree = ast.parse(script)
    assert "vllm_harness" not in ast.unparse(tree)
    assert str(Path.home()) not in script
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id not in ("TOKENIZER", "PORT", "URL")
    }


@pytest.mark.parametrize("defect", ONE_OF_EACH, ids=lambda defect: defect.id)
def test_a_script_is_complete(defect: Defect) -> None:
    values = constants_of(files_of(checked(defect), shown(defect), "release vllm 0.32.0").script)
    assert all(step["path"].startswith("/") for step in values["STEPS"])
    assert "model/config.json" in values["FILES"]
    assert "--logits-processors" in values["FLAGS"]


def test_a_script_fills_in_earlier_answers_as_the_harness_does() -> None:
    answers = [{"body": {"id": "resp_1", "output": [{"type": "message"}]}}]
    value = {
        "id": "{steps[0].body.id}",
        "all": ["{steps[0].body.output[0]}", "a {b} c", 1, "/{steps[0].body.id}/x"],
    }
    assert reproduce.filled(value, answers) == filled(value, answers)  # type: ignore[no-untyped-call]


def test_a_report_has_requests_and_answers() -> None:
    defect = load_defects()["vllm-46940"]
    text = files_of(checked(defect), shown(defect), "release vllm 0.24.0").report
    assert text.startswith(f"# {defect.title}\n")
    for part in (
        "vllm serve ./model --tokenizer openai/gpt-oss-20b",
        "curl http://127.0.0.1:8000/v1/responses",
    ):
        assert part in text
    assert "`````json" in text  # a longer fence than any in the answer


def test_an_export_has_an_index_worst_first(tmp_path: Path) -> None:
    mild = load_defects()["vllm-46940"]
    worst = next(
        defect
        for defect in REQUESTED
        if any("arguments_differ" in each.mismatches for each in defect.failures) and not defect.repro
    )
    verdicts = [Measured.of(each.id, "0.24.0", "0.24.0", shown(each)) for each in (mild, worst)]
    folders = export(list(zip((mild, worst), verdicts, strict=True)), "release vllm 0.24.0", tmp_path)
    assert all((folder / name).is_file() for folder in folders for name in ("README.md", "reproduce.py"))
    index = (tmp_path / "index.md").read_text()
    assert index.index("## Wrong data") < index.index(worst.id) < index.index(mild.id)


def entry_of(draft: dict[str, Any]) -> Defect:
    """Reads a draft as a defect entry."""
    return Defect.model_validate(yaml.safe_load(as_yaml("a-new-one", draft)))


def test_a_draft_of_a_failed_test(tmp_path: Path) -> None:
    name = "tests/standard/test_a.py::test_b[scripted-qwen3]"
    target = {"vllm": "0.32.0 cpu (release)", "failures": {name: "AssertionError: assert None == 'a (b)'"}}
    (tmp_path / "results.json").write_text(json.dumps({"scripted-qwen3": target}))
    defect = entry_of(from_test(tmp_path, "test_b"))
    assert defect.models == ("qwen3",)
    assert defect.shown_by(AssertionError("assert None == 'a (b)'"))
    assert defect.holds_for("0.32.0")
    assert not defect.holds_for("0.31.0")
    with pytest.raises(UsageError, match="0 failed tests"):
        from_test(tmp_path, "test_c")


def test_a_draft_of_a_cell(tmp_path: Path) -> None:
    cases = {"call": {"topic": "calls", "text": "call", "mismatches": {"tokens_1": ["call_lost"]}}}
    place = {"environment": "0.32.0", "described": "any", "family": "hermes", "group": "canonical"}
    parsers = {"tool_parser": "hermes", "reasoning_parser": None, "tokenizer": "synthetic"}
    fields = {**place, **parsers, "engine": "in-process", "cases_digest": "any", "cases": cases}
    RegressionRun(tmp_path).write(Cell.model_validate(fields))
    defect = entry_of(from_cell(str(tmp_path), "hermes", "call"))
    assert defect.failures[0].deliveries == ("tokens_1",)
    assert is_reproducible(defect)
    with pytest.raises(UsageError, match="failed cases: call"):
        from_cell(str(tmp_path), "hermes", "another")


@pytest.mark.parametrize("as_stream", [True, False])
def test_a_draft_of_traffic(as_stream: bool, tmp_path: Path) -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    choice = {"index": 0, "finish_reason": "tool_calls"}
    common = {"id": "c", "created": 1, "model": "m"}
    chunk = {
        **common,
        "object": "chat.completion.chunk",
        "choices": [{**choice, "delta": {"tool_calls": [call]}}],
    }
    body = {**common, "object": "chat.completion", "choices": [{**choice, "message": {"tool_calls": [call]}}]}
    answer: dict[str, Any] = {"events": [chunk]} if as_stream else {"body": body}
    exchange = {"request": {"model": "m", "messages": []}, "path": "/v1/chat/completions", **answer}
    (tmp_path / "traffic.json").write_text(json.dumps(exchange))
    defect = entry_of(from_capture(tmp_path / "traffic.json", "qwen3"))
    assert defect.repro
    (step,) = defect.repro.steps
    assert step.body == {"messages": []}
    assert step.say == ({"calls": [{"name": "now", "arguments": "{}"}]},)
