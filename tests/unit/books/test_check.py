"""The check of script books finds each mistake, and names its line and its rule, with a hint."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._scripted.book_check import CheckedBook, check_book
from vllm_harness.cli.main import app

MODELS = load_models()
TRIP = Path(__file__).parents[2] / "scripted" / "trip.yaml"


class Mistake(NamedTuple):
    """The YAML after the name of a rule, and the expected problem."""

    text: str
    severity: str
    message: str
    hint: str = ""
    model: str = "qwen3"


MISTAKES = {
    "a pattern with flags in it": Mistake(
        r"when: {user: '2 \+ 2\? (?i)think'}, say: x",
        "error",
        "when.user: invalid regular expression: global flags",
        "(?i)",
    ),
    "an invalid pattern": Mistake(
        "when: {not: {user: '('}}, say: x", "error", "when.not.user: invalid regular"
    ),
    "an unknown key": Mistake(
        "when: {usr: x}, say: x", "error", "when.usr: unknown key, did you mean 'user'?"
    ),
    "an unknown key of an answer": Mistake(
        "say: {tex: x}", "error", "say.tex: unknown key, did you mean 'text'?"
    ),
    "an unknown API": Mistake(
        "when: {api: response}, say: x", "error", "when.api: Input should be 'responses'"
    ),
    "no answer": Mistake("when: {user: x}", "error", "a rule needs either 'say' or 'turns'"),
    "two answers": Mistake("say: {text: x, raw: y}", "error", "say: give exactly one of"),
    "a word as text": Mistake(
        "say: no", "error", "say: Input should be a mapping; YAML reads no as false", "'no'"
    ),
    "a word as number": Mistake(
        "times: yes, say: x", "error", "times: Input should be a valid integer; YAML reads"
    ),
    "a word as truth": Mistake(
        "when: {stream: on}, say: x", "warning", "YAML reads on as true", "write true"
    ),
    "a word as case": Mistake(
        "when: {user: '(?P<a>y|n)'}, say: {case: a, of: {yes: x}}",
        "error",
        "say.of.yes: Input should",
        "'yes'",
    ),
    "a number as case": Mistake(
        "when: {user: '(?P<a>1)'}, say: {case: a, of: {1: x}}", "error", "say.of.1: Input should", "write '1'"
    ),
    "an unknown group": Mistake(
        "when: {user: '(?P<city>.+)'}, say: 'in ${citi}'",
        "error",
        "no pattern in `when` has a group 'citi'",
        "city?",
    ),
    "a group without any pattern": Mistake(
        "say: 'in ${city}'", "error", "has a group 'city'", "(?P<city>[A-Z]+)"
    ),
    "a group of `not`": Mistake(
        "when: {not: {user: '(?P<city>.+)'}}, say: 'in ${city}'", "error", "has a group 'city'", "(?P<city>"
    ),
    "a case without a group": Mistake("say: {case: city, of: {x: y}}", "error", "has a group 'city'"),
    "ids beyond the vocabulary": Mistake(
        "say: {ids: [151936]}", "error", "151936 is not a token id of qwen3", "`raw`"
    ),
    "parallel calls in Harmony": Mistake(
        "say: {calls: [{name: a}, {name: b}]}",
        "error",
        "ends a turn at its first call",
        "or serve qwen3",
        "gpt-oss",
    ),
    "reasoning without a format": Mistake(
        "say: {reasoning: x, text: y}", "error", "has no reasoning", "or serve gpt-oss or qwen3", "llama3.1"
    ),
    "a marker in a text": Mistake(
        "say: 'a <|im_end|> b'", "error", "reads <|im_end|> as a marker", "raw text"
    ),
    "a misspelt marker": Mistake(
        "say: {raw: '<tool_cal>x</tool_call>'}", "warning", "<tool_cal> in `raw`", "write <tool_call>,"
    ),
    "a misspelt marker of Harmony": Mistake(
        "say: {raw: '<|chanel|>final<|message|>x'}",
        "warning",
        "<|chanel|> in `raw`",
        "write <|channel|>,",
        "gpt-oss",
    ),
    "arguments that are not JSON": Mistake(
        "say: {calls: [{name: a, arguments: '{x: 1}'}]}",
        "warning",
        "arguments of a are not a JSON object",
        "mapping",
    ),
    "turns that are never used": Mistake(
        "turns: [a, b]", "warning", "only the first of `turns` is used", "turn: 0"
    ),
}


def book(folder: Path, text: str) -> Path:
    """Writes a book into a file."""
    path = folder / "book.yaml"
    path.write_text(text)
    return path


def checked(path: Path, model: str = "qwen3", *args: str) -> CheckedBook:
    """Checks a book for use with a model."""
    return check_book(path, MODELS.get(model), others=list(MODELS), args=args)


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_the_only_problem(mistake: Mistake, tmp_path: Path) -> None:
    path = book(tmp_path, f"rules:\n  - {{name: it, {mistake.text}}}\n")
    (problem,) = checked(path, mistake.model).problems
    assert (problem.severity, problem.line, problem.rule) == (mistake.severity, 2, "rule 'it'")
    assert mistake.message in problem.message
    assert mistake.hint in problem.hint + problem.message


RULES = """\
rules:
  - name: Rome
    when: {user: Rome, tools: [a]}
    say: x
  - name: Rome and b
    when: {user: Rome, tools: [b, a]}
    say: x
  - name: some
    times: 1
    say: x
  - name: some
    when: {user: y}
    say: x
  - say: x
  - name: last
    when: {user: z}
    say: x
"""


def test_unreachable_rules_and_repeated_names(tmp_path: Path) -> None:
    problems = checked(book(tmp_path, RULES)).problems
    assert [(problem.line, problem.message) for problem in problems] == [
        (5, "can never be taken: rule 'Rome' (book.yaml:2) takes every request that this one matches"),
        (11, "has the name of the rule at book.yaml:8"),
        (15, "can never be taken: rule 'rule 5' (book.yaml:14) takes every request"),
    ]
    assert all(problem.severity == "error" for problem in problems)


def test_turns_are_used_with_built_in_tools(tmp_path: Path) -> None:
    path = book(tmp_path, "rules:\n  - turns: [a, b]\n")
    assert checked(path, "qwen3", "--tool-server=demo").problems == ()
    assert check_book(path).problems == ()  # without a model, its tools are unknown


def test_the_command_reports_all_mistakes_at_once(tmp_path: Path) -> None:
    path = book(tmp_path, "rules:\n  - {say: a}\n  - {say: {ids: [-1]}}\n  - {when: {user: (}, say: a}\n")
    result = CliRunner().invoke(app, ["book", "check", str(path), "--model", "qwen3"])
    assert result.exit_code == 1
    assert f"{path}:4: error: rule 3: when.user: invalid regular expression" in result.output
    assert f"{path}:3: error: rule 2: -1 is not a token id of qwen3" in result.output
    assert f"{path}:3: error: rule 2: can never be taken" in result.output
    path.write_text("rules:\n  - {say: a}\n  - {say: {ids: [-1]}}\n")
    result = CliRunner().invoke(app, ["book", "check", str(path), "--model", "qwen3"])
    assert result.output.endswith("rules: 2, errors: 2, warnings: 0\n")
    assert CliRunner().invoke(app, ["book", "check", str(path)]).output.endswith("errors: 1, warnings: 0\n")
    path.write_text("rules:\n  - {say: a}\n")
    assert CliRunner().invoke(app, ["book", "check", str(path), "--model", "qwen3"]).exit_code == 0


ON_PURPOSE = {
    r"(?P<city>\w+)": r"(?P<city>\w+",
    "arguments: {city: '${city}'}}": """arguments: '{"city": Lisbon}'}""",
    "  - name: proposes\n": "  - {name: anything, say: Pardon?}\n  - name: proposes\n",
}
"""Deliberate mistakes in a book whose author knew only the reference page: right text -> mistake."""


def test_three_mistakes_in_a_valid_book_are_found_at_once(tmp_path: Path) -> None:
    path = book(tmp_path, TRIP.read_text())
    assert checked(path).problems == ()
    text = TRIP.read_text()
    for right, wrong in ON_PURPOSE.items():
        assert right in text
        text = text.replace(right, wrong, 1)
    path.write_text(text)
    messages = [problem.message for problem in checked(path).problems]
    assert [message.split(":")[0] for message in messages] == [
        "when.user",
        "the arguments of get_weather are not a JSON object",
        "can never be taken",
        "can never be taken",
    ]


def test_an_invalid_book_starts_no_server(tmp_path: Path) -> None:
    path = book(tmp_path, "rules:\n  - {say: {ids: [-1]}}\n")
    result = CliRunner().invoke(app, ["serve", "qwen3", "--book", str(path)])
    assert "the book cannot be served" in str(result.exception)
    assert f"{path}:2: error: rule 1: -1 is not a token id" in str(result.exception)


def test_an_empty_book_is_an_error(tmp_path: Path) -> None:
    (problem,) = checked(book(tmp_path, "rules: []\n")).problems
    assert problem.message == "a book needs at least one rule"
