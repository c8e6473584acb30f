"""Files of dialects: what they may hold, and how a mistake in one is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness._errors import UsageError
from vllm_harness._scripted.dialects.forms import FORMS, load_forms
from vllm_harness._scripted.meaning import Meaning, ToolCall

DIALECT = """\
tagged: &tagged
  source: nowhere
  frame: chatml
  thoughts: opened
  calls:
    call: "<call>$name $arguments</call>"
    marker: "<call>"
other:
  <<: *tagged
  thoughts: null
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tagged.yaml").write_text(DIALECT)
    return tmp_path


def test_a_file_is_all_that_a_dialect_needs(folder: Path) -> None:
    forms = load_forms(folder)
    meaning = Meaning.of(calls=(ToolCall("f", {"x": 1}),))
    assert forms["tagged"].render(meaning) == '\n</think>\n\n<call>f {"x": 1}</call><|im_end|>'
    assert forms["other"].render(meaning) == '<call>f {"x": 1}</call><|im_end|>'
    assert forms["tagged"].tail == "<|im_start|>assistant\n<think>\n"


@pytest.mark.parametrize(
    ("text", "instead", "problem"),
    [
        ("frame: chatml", "frame: chatmll", "3: tagged.frame: no 'chatmll' among the frames"),
        ("thoughts: opened", "thoughts: 3", "4: tagged.thoughts: "),
        ("$name $arg", "$named $arg", r"6: tagged.calls.call: unknown placeholder \$named; there are \$name"),
        ('"<call>$name', '"<call>$ $name', r"6: tagged.calls.call: a lone \$"),
        ("marker:", "marked:", "7: tagged.calls.marked: Unexpected keyword argument"),
        ("marker:", "arguments: {notation: xml}\n    marker:", "7: tagged.calls.arguments: .*'xml'"),
        ("thoughts: null", "thoughts: 3", "10: other.thoughts: "),
        ("thoughts: null", "name: another", "the key of other is its name"),
        ("frame: chatml", "frame: {roles: {user: a}, close: {}, end: b}", "3: tagged.frame.roles: nothing"),
    ],
)
def test_a_mistake_is_named_by_file_line_and_key(folder: Path, text: str, instead: str, problem: str) -> None:
    path = folder / "tagged.yaml"
    path.write_text(DIALECT.replace(text, instead))
    with pytest.raises(UsageError, match=problem) as raised:
        load_forms.__wrapped__(folder)
    assert str(path) in str(raised.value)


def test_a_turn_ends_with_a_token(folder: Path) -> None:
    roles = "{system: a, user: a, assistant: a, tool: a}"
    frame = f'frame: {{roles: {roles}, close: {{"": a}}, end: b, tokens: [a]}}'
    (folder / "tagged.yaml").write_text(DIALECT.replace("frame: chatml", frame))
    with pytest.raises(UsageError, match=r"3: tagged\.frame: a turn ends with one of the tokens"):
        load_forms.__wrapped__(folder)


def test_two_files_cannot_have_one_dialect(folder: Path) -> None:
    (folder / "untagged.yaml").write_text(DIALECT)
    with pytest.raises(UsageError, match=r"untagged\.yaml: another file .* has a dialect 'other' too"):
        load_forms.__wrapped__(folder)


def test_the_files_have_a_json_schema() -> None:
    form = FORMS.json_schema()["$defs"]["Form"]
    assert {"source", "frame", "calls"} <= set(form["required"])
    assert {"type": "string"} in form["properties"]["frame"]["anyOf"]
