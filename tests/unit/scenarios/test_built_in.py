"""Tools of the server's own: offered in every turn, seen in answers, and a turn that lacks their calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._errors import UsageError
from vllm_harness._exchange.answer import Answer, answer_of
from vllm_harness._exchange.building import Sent
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._scenarios.conversation import Served
from vllm_harness._scenarios.course import Course
from vllm_harness._scenarios.judging import CALLS, TurnMismatch
from vllm_harness._scenarios.reading import find_scenario, read_scenario
from vllm_harness._scenarios.results import TurnResult
from vllm_harness._scenarios.running import needed_capabilities
from vllm_harness._scenarios.toolboxes import opened
from vllm_harness.cli.main import app

STORY = read_scenario(find_scenario("code-interpreter"))


def served() -> Served:
    """A server that nobody asks."""
    entry = load_models().get("gpt-oss")
    return Served(Endpoint("http://127.0.0.1:9"), entry.name, entry, "0.32.0", scripted=True)


def test_they_are_offered_by_their_types() -> None:
    both = STORY.model_copy(update={"built_in": ("code_interpreter", "web_search")})
    with opened(both, {}) as toolbox:
        assert [tool["type"] for tool in toolbox.of_server] == ["code_interpreter", "web_search_preview"]
    assert needed_capabilities(STORY, scripted=True) == {"mcp", "background"}


@pytest.mark.parametrize(
    ("item", "name", "values"),
    [
        ({"type": "code_interpreter_call", "code": "print(1)"}, "code_interpreter", {"code": "print(1)"}),
        (
            {"type": "web_search_call", "action": {"type": "search", "query": "Paris"}},
            "web_search",
            {"type": "search", "query": "Paris"},
        ),
    ],
)
def test_their_calls_are_seen(item: dict[str, Any], name: str, values: dict[str, Any]) -> None:
    answer = answer_of("responses", {"status": "completed", "output": [{"id": "x_1", **item}]})
    (call,) = answer.calls
    assert (call.id, call.name, call.values, answer.open_calls) == ("x_1", name, values, [])


@pytest.mark.parametrize(
    ("by_server", "reason"), [(True, ""), (False, "turn seconds made no call (error_stop)")]
)
def test_only_calls_that_the_client_answers_end_the_conversation(by_server: bool, reason: str) -> None:
    story = STORY if by_server else STORY.model_copy(update={"built_in": ()})
    course, (first, second, _) = Course(story), story.turns
    lacking = TurnResult("seconds", mismatches=[TurnMismatch(CALLS, "code_interpreter", "no call")])
    lacking.sent, lacking.answer = Sent((), ()), Answer("completed", "Many.")
    course.note(first, lacking)
    assert course.why_not(second) == reason
    assert lacking.wrong


def test_a_cassette_refuses_it(tmp_path: Path) -> None:
    command = ["cassette", "record", "code-interpreter", "--model", "gpt-oss", "-o", str(tmp_path / "a.yaml")]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, UsageError) or result.exit_code == 2
    assert "cannot hold a response in the background" in f"{result.output}{result.exception}"
