"""Tests dialect files: their content, and error messages for mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness._errors import UsageError
from vllm_harness._scripted.dialects.form import FORMS, load_forms
from vllm_harness._scripted.meaning import Meaning, ToolCall

DIALECT = """\
tagged: &tagged
  source: nowhere
  frame: chatml
  reasoning: opened
  calls:
    call: "<call>$name $arguments</call>"
    marker: "<call>"
other:
  <<: *tagged
  reasoning: null
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tagged.yaml").write_text(DIALECT)
    return tmp_path


def test_a_file_defines_a_dialect(folder: Path) -> None:
    forms = load_forms(folder)
    meaning = Meaning.of(calls=(ToolCall("f", {"x": 1}),))
    assert forms["tagged"].render(meaning) == '\n</think>\n\n<call>f {"x": 1}</call><|im_end|>'
    assert forms["other"].render(meaning) == '<call>f {"x": 1}</call><|im_end|>'
    assert forms["tagged"].tail == "<|im_start|>assistant\n<think>\n"


@pytest.mark.parametrize(
    ("text", "instead", "problem"),
    [
        ("frame: chatml", "frame: chatmll", "3: tagged.frame: 'chatmll' is not in the frames"),
        ("reasoning: opened", "reasoning: 3", "4: tagged.reasoning: "),
        (
            "$name $arg",
            "$named $arg",
            r"6: tagged.calls.call: unknown placeholder \$named; the known ones are \$name",
        ),
        ('"<call>$name', '"<call>$ $name', r"6: tagged.calls.call: a lone \$"),
        ("marker:", "marked:", "7: tagged.calls.marked: Unexpected keyword argument"),
        ("marker:", "arguments: {notation: xml}\n    marker:", "7: tagged.calls.arguments: .*'xml'"),
        ("reasoning: null", "reasoning: 3", "10: other.reasoning: "),
        ("reasoning: null", "name: another", "the key of other is its name"),
        (
            "frame: chatml",
            "frame: {roles: {user: a}, close: {}, end: b}",
            "3: tagged.frame.roles: .*system is missing",
        ),
    ],
)
def test_an_error_names_file_line_and_key(folder: Path, text: str, instead: str, problem: str) -> None:
    path = folder / "tagged.yaml"
    path.write_text(DIALECT.replace(text, instead))
    with pytest.raises(UsageError, match=problem) as raised:
        load_forms.__wrapped__(folder)
    assert str(path) in str(raised.value)


def test_a_turn_ends_with_a_token(folder: Path) -> None:
    roles = "{system: a, user: a, assistant: a, tool: a}"
    frame = f'frame: {{roles: {roles}, close: {{"": a}}, end: b, tokens: [a]}}'
    (folder / "tagged.yaml").write_text(DIALECT.replace("frame: chatml", frame))
    with pytest.raises(UsageError, match=r"3: tagged\.frame: a turn must end with one of the tokens"):
        load_forms.__wrapped__(folder)


def test_two_files_cannot_define_the_same_dialect(folder: Path) -> None:
    (folder / "untagged.yaml").write_text(DIALECT)
    with pytest.raises(UsageError, match=r"untagged\.yaml: another file .* also defines the dialect 'other'"):
        load_forms.__wrapped__(folder)


def test_the_files_have_a_json_schema() -> None:
    form = FORMS.json_schema()["$defs"]["Form"]
    assert {"source", "frame", "calls"} <= set(form["required"])
    assert {"type": "string"} in form["properties"]["frame"]["anyOf"]
