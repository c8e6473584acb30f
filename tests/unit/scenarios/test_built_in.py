"""Built-in tools of the server: in requests, in answers, and in turns without the expected calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from vllm_harness._errors import UsageError
from vllm_harness._exchange.answer import Answer, answer_of
from vllm_harness._exchange.building import TurnInput
from vllm_harness._scenarios.history import ConversationHistory
from vllm_harness._scenarios.mismatches import CALLS, TurnMismatch
from vllm_harness._scenarios.reading import find_scenario, read_scenario
from vllm_harness._scenarios.results import TurnResult
from vllm_harness._scenarios.running import needed_capabilities
from vllm_harness._scenarios.toolboxes import opened
from vllm_harness.cli.main import app

STORY = read_scenario(find_scenario("code-interpreter"))


def test_requests_offer_them_by_type() -> None:
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
def test_answers_have_their_calls(item: dict[str, Any], name: str, values: dict[str, Any]) -> None:
    answer = answer_of("responses", {"status": "completed", "output": [{"id": "x_1", **item}]})
    (call,) = answer.calls
    assert (call.id, call.name, call.values, answer.open_calls) == ("x_1", name, values, [])


@pytest.mark.parametrize(
    ("by_server", "reason"), [(True, ""), (False, "turn seconds made no call (error_stop)")]
)
def test_only_calls_that_the_client_answers_end_the_conversation(by_server: bool, reason: str) -> None:
    story = STORY if by_server else STORY.model_copy(update={"built_in": ()})
    history, (first, second, _) = ConversationHistory(story), story.turns
    lacking = TurnResult("seconds", mismatches=[TurnMismatch(CALLS, "code_interpreter", "no call")])
    lacking.sent, lacking.answer = TurnInput((), ()), Answer("completed", "Many.")
    history.add(first, lacking)
    assert history.obstacle(second) == reason
    assert lacking.wrong


def test_a_cassette_refuses_it(tmp_path: Path) -> None:
    command = ["cassette", "record", "code-interpreter", "--model", "gpt-oss", "-o", str(tmp_path / "a.yaml")]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, UsageError) or result.exit_code == 2
    assert "cannot contain a background response" in f"{result.output}{result.exception}"
