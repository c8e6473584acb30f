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
from vllm_harness._protocol.conversation.exchange import accumulate
from vllm_harness._protocol.core.events import Json
from vllm_harness._protocol.samples import SAMPLES, Sample
from vllm_harness._regression.engines.answer import CaseAnswer
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
    assert (values["RIGHT"], values["WRONG"]) == (
        (defect.repro.expected, defect.repro.actual) if defect.repro else ("", "")
    )


def test_a_script_fills_in_earlier_answers_as_the_harness_does() -> None:
    answers = [{"body": {"id": "resp_1", "output": [{"type": "message"}]}}]
    value = {
        "id": "{steps[0].body.id}",
        "all": ["{steps[0].body.output[0]}", "a {b} c", 1, "/{steps[0].body.id}/x"],
    }
    assert reproduce.filled(value, answers) == filled(value, answers)  # type: ignore[no-untyped-call]


STREAMS = [sample for sample in SAMPLES.values() if sample.kind in ("responses", "chat", "messages")]


def meaning_by_script(body: Json, events: list[Json] | None = None) -> Any:
    answer = {"status": 200, "body": body} if events is None else {"status": 200, "events": events}
    if events is not None:
        answer["stream"] = reproduce.added_up(events)  # type: ignore[no-untyped-call]
    return reproduce.meaning_of(answer)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("sample", STREAMS, ids=[name for name, each in SAMPLES.items() if each in STREAMS])
def test_a_script_adds_up_a_stream_as_the_harness_does(sample: Sample) -> None:
    events = [event for event in sample.build() if isinstance(event, dict)]
    body = accumulate(events).body
    assert meaning_by_script({}, events) == meaning_by_script(body)


@pytest.mark.parametrize(
    ("content", "verdict"), [("Hello.", False), (" Hello.\n", False), ("Hell", True), ("", True)]
)
def test_a_script_judges_what_an_answer_means(content: str, verdict: bool) -> None:
    means = {"reasoning": "", "text": "Hello.", "calls": []}
    bodies = [
        {"status": 200, "body": {"choices": [{"message": {"content": text}}]}} for text in ("Hello.", content)
    ]
    for expected in (means, "the same"):
        assert reproduce.verdict(bodies, "", "", expected) is verdict  # type: ignore[no-untyped-call]


def test_a_script_judges_by_the_conditions_of_the_entry() -> None:
    def verdict(status: int) -> object:
        conditions = "status == `200` && steps[0].status == `200`", "status == `500`"
        return reproduce.verdict([{"status": 200}, {"status": status}], *conditions, None)  # type: ignore[no-untyped-call]

    assert [verdict(status) for status in (200, 500, 404)] == [False, True, None]


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [([False], 0), ([None], 3), ([True], 1), ([False, True, None], 1), ([False, None], 0)],
)
def test_the_exit_code_of_a_script(
    verdicts: list[bool | None], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce.conclusion(verdicts) == code  # type: ignore[no-untyped-call]
    counted = f"SHOWS in {verdicts.count(True)} of {len(verdicts)} rounds"
    assert (counted in capsys.readouterr().out) == (code != 3)


def case_of(meaning: str | None) -> tuple[ServedCase, Reproduction]:
    """A parser's defect with a wrong streamed answer, in a case with an expected meaning or without one."""
    served = next(
        found
        for defect in REQUESTED
        if isinstance(found := reproducer_of(defect), ServedCase)
        and bool(found.cases[0].expected.meaning) == (meaning is not None)
        and found.deliveries[-1].is_streamed
        and not found.cases[0].expected.refused
    )
    place = {"family": served.family.name, "case": served.cases[0].name}
    answers = [
        CaseAnswer(**place, delivery=delivery, content="Wrong." if delivery.is_streamed else "Right.")
        for delivery in served.deliveries
    ]
    documents = [each.model_dump(mode="json", exclude_defaults=True) for each in answers]
    code = served.deliveries[-1].code
    return served, Reproduction("reproduced", case=place["case"], delivery=code, answers=documents)


@pytest.mark.parametrize("meaning", ["expected", None])
def test_a_script_of_a_streamed_case_says_how_often_it_shows(meaning: str | None) -> None:
    served, reproduction = case_of(meaning)
    values = constants_of(files_of(served, reproduction, "release vllm 0.32.0").script)
    assert values["ROUNDS"] == 20
    if meaning is None:
        assert values["MEANS"] == "the same"
    else:
        assert values["MEANS"].keys() == {"reasoning", "text", "calls"}


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
