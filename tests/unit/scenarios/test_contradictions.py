"""Scripts that contradict the expectations of their turns are reported before a server runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from vllm_harness._scenarios.format import Scenario
from vllm_harness._scenarios.mismatches import contradictions
from vllm_harness._scenarios.reading import read_scenario, stories_of_package
from vllm_harness.cli.main import app

TOOL = {"parameters": {"type": "object", "properties": {}}, "outputs": [{"output": "sunny"}]}
CALL = {"name": "get_weather", "arguments": {"city": "Paris"}}
SERVER = {"tools": {"get_time": TOOL}, "called_by": "server"}
FILE = """\
scenario: 1
turns:
  - name: ask
    user: Hi
    expect: {text: {contains: sunny}}
    say: It is rainy.
"""


def reported(turn: dict[str, Any], **more: Any) -> list[str]:
    """The places of the contradictions in a turn that asks for the weather."""
    fields = {"name": "ask", "user": "Weather?", **turn}
    scenario = Scenario.model_validate(
        {"scenario": 1, "tools": {"get_weather": TOOL}, "turns": [fields], **more}
    )
    return [each.what for each in contradictions(scenario, scenario.turns[0])]


@pytest.mark.parametrize(
    ("expect", "say", "places"),
    [
        ({"calls": [CALL]}, {"calls": [CALL]}, []),
        ({"calls": [CALL]}, "It is sunny.", ["calls"]),
        ({"calls": []}, {"calls": [CALL]}, ["calls"]),
        (
            {"calls": [CALL]},
            {"calls": [{**CALL, "arguments": {"city": "Lyon"}}]},
            ["calls[0].arguments.city"],
        ),
        ({"text": {"contains": "sunny"}}, "It is rainy.", ["text[0]"]),
        ({"text": {"contains": "sunny"}}, "It is sunny.", []),
        ({"text": {"contains": "sunny"}, "status": "refused"}, "It is rainy.", []),
        ({"text": {"contains": "sunny"}}, {"raw": "whatever this family makes of it"}, []),
    ],
)
def test_unexpected_words_are_reported(expect: dict[str, Any], say: Any, places: list[str]) -> None:
    assert reported({"expect": expect, "say": say}) == places


def test_intended_contradictions_are_not_reported() -> None:
    turn = {"expect": {"calls": [CALL]}, "say": "It is sunny."}
    assert reported(turn) == ["calls"]
    assert reported(turn, missing_tool_call="ignore_stop") == []
    assert reported({**turn, "known": [{"defect": "any", "over": ["chat"]}]}) == []
    assert reported(turn, mcp={"clock": SERVER}) == []


def test_the_command_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "weather.yaml"
    path.write_text(FILE)
    result = CliRunner().invoke(app, ["scenario", "check", str(path)])
    assert result.exit_code == 1
    expected = """does not meet the turn's expectation: text[0]: expected a text with "sunny" in it"""
    assert f"{path}:6: turns.0.say: {expected}" in result.output


@pytest.mark.parametrize("path", stories_of_package(), ids=lambda path: path.stem)
def test_the_stories_have_no_contradictions(path: Path) -> None:
    scenario = read_scenario(path)
    assert not [each for turn in scenario.turns for each in contradictions(scenario, turn)]
