"""Every mistake in a book is found before anything starts, with its line, its rule and what to do instead."""

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
    """What stands beside the name of a rule, and what is to be said of it."""

    text: str
    severity: str
    said: str
    hint: str = ""
    model: str = "qwen3"


MISTAKES = {
    "a pattern with flags in it": Mistake(
        r"when: {user: '2 \+ 2\? (?i)think'}, say: x",
        "error",
        "when.user: invalid regular expression: global flags",
        "(?i)",
    ),
    "a pattern that is none": Mistake(
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
    "no answer": Mistake("when: {user: x}", "error", "a rule has either 'say' or 'turns'"),
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
    "a group that there is not": Mistake(
        "when: {user: '(?P<city>.+)'}, say: 'in ${citi}'",
        "error",
        "no pattern in `when` has a group 'citi'",
        "city?",
    ),
    "a group that is nowhere": Mistake(
        "say: 'in ${city}'", "error", "has a group 'city'", "(?P<city>[A-Z]+)"
    ),
    "a group of `not`": Mistake(
        "when: {not: {user: '(?P<city>.+)'}}, say: 'in ${city}'", "error", "has a group 'city'", "(?P<city>"
    ),
    "a case of no group": Mistake("say: {case: city, of: {x: y}}", "error", "has a group 'city'"),
    "ids beyond the vocabulary": Mistake(
        "say: {ids: [151936]}", "error", "151936 is no token id of qwen3", "`raw`"
    ),
    "parallel calls in Harmony": Mistake(
        "say: {calls: [{name: a}, {name: b}]}",
        "error",
        "ends a turn at its first call",
        "or serve qwen3",
        "gpt-oss",
    ),
    "thoughts where there are none": Mistake(
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
    "arguments that are no JSON": Mistake(
        "say: {calls: [{name: a, arguments: '{x: 1}'}]}",
        "warning",
        "arguments of a are no JSON object",
        "mapping",
    ),
    "turns that are never used": Mistake(
        "turns: [a, b]", "warning", "only the first of `turns` is used", "turn: 0"
    ),
}


def book(folder: Path, text: str) -> Path:
    """A file with a book."""
    path = folder / "book.yaml"
    path.write_text(text)
    return path


def checked(path: Path, model: str = "qwen3", *args: str) -> CheckedBook:
    """A book, checked for a model."""
    return check_book(path, MODELS.get(model), others=list(MODELS), args=args)


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_found_and_right_beside_it_nothing_else(mistake: Mistake, tmp_path: Path) -> None:
    path = book(tmp_path, f"rules:\n  - {{name: it, {mistake.text}}}\n")
    (problem,) = checked(path, mistake.model).problems
    assert (problem.severity, problem.line, problem.rule) == (mistake.severity, 2, "rule 'it'")
    assert mistake.said in problem.message
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


def test_rules_that_none_can_reach_and_names_given_twice(tmp_path: Path) -> None:
    problems = checked(book(tmp_path, RULES)).problems
    assert [(problem.line, problem.message) for problem in problems] == [
        (5, "can never be taken: rule 'Rome' (book.yaml:2) takes every request that this one is for"),
        (11, "has the name of the rule at book.yaml:8"),
        (15, "can never be taken: rule 'rule 5' (book.yaml:14) takes every request"),
    ]
    assert all(problem.severity == "error" for problem in problems)


def test_turns_are_used_where_there_are_built_in_tools(tmp_path: Path) -> None:
    path = book(tmp_path, "rules:\n  - turns: [a, b]\n")
    assert checked(path, "qwen3", "--tool-server=demo").problems == ()
    assert check_book(path).problems == ()  # of no model it is not known


def test_all_mistakes_are_told_at_once_and_the_exit_code_is_that_of_findings(tmp_path: Path) -> None:
    path = book(tmp_path, "rules:\n  - {say: a}\n  - {say: {ids: [-1]}}\n  - {when: {user: (}, say: a}\n")
    result = CliRunner().invoke(app, ["book", "check", str(path), "--model", "qwen3"])
    assert result.exit_code == 1
    assert f"{path}:4: error: rule 3: when.user: invalid regular expression" in result.output
    assert f"{path}:3: error: rule 2: -1 is no token id of qwen3" in result.output
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
"""Made on purpose by somebody who wrote that book from the page of reference alone."""


def test_a_book_from_the_page_is_right_and_three_mistakes_in_it_are_told_at_once(tmp_path: Path) -> None:
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
        "the arguments of get_weather are no JSON object",
        "can never be taken",
        "can never be taken",
    ]


def test_a_server_of_a_wrong_book_is_not_started(tmp_path: Path) -> None:
    path = book(tmp_path, "rules:\n  - {say: {ids: [-1]}}\n")
    result = CliRunner().invoke(app, ["serve", "qwen3", "--book", str(path)])
    assert "the book cannot be served" in str(result.exception)
    assert f"{path}:2: error: rule 1: -1 is no token id" in str(result.exception)


def test_an_empty_book_is_an_error(tmp_path: Path) -> None:
    (problem,) = checked(book(tmp_path, "rules: []\n")).problems
    assert problem.message == "a book has at least one rule"
