"""Scenarios over every transport, and the findings if something is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.lost_calls import lost_calls_of_scenarios_excused
from vllm_harness._defects.registry import load_defects
from vllm_harness._exchange.building import TurnRequest
from vllm_harness._exchange.server import VllmServer
from vllm_harness._protocol.core.events import Json
from vllm_harness._scenarios.format import Scenario
from vllm_harness._scenarios.reading import read_scenario, stories_of_package
from vllm_harness._scenarios.running import needed_capabilities, run, transports_of
from vllm_harness._scenarios.transports import Transport
from vllm_harness._testing.scenarios import ScenarioRunner

STORIES = [
    pytest.param(
        path.stem,
        id=path.stem,
        marks=pytest.mark.vllm_needs(*needed_capabilities(read_scenario(path), scripted=False)),
    )
    for path in stories_of_package()
    if not read_scenario(path).of_server  # which needs a server with certain flags
]
TOOL = {"parameters": {"type": "object", "properties": {}}, "outputs": [{"output": "21 degrees"}]}
CALL: dict[str, Any] = {"calls": [{"name": "get_weather"}]}


def of(*turns: dict[str, Any], **more: Any) -> Scenario:
    """Returns a scenario with one tool."""
    return Scenario.model_validate({"scenario": 1, "tools": {"get_weather": TOOL}, "turns": turns, **more})


@pytest.mark.vllm_long
@pytest.mark.vllm_needs("store")
@pytest.mark.covers("AG-004", "VR-021", "VR-022", "VR-042", "VR-044", "VR-045", "LS-004")
@pytest.mark.parametrize("story", STORIES)
def test_story(story: str, scenario: ScenarioRunner, vllm_server: VllmServer) -> None:
    """Runs a story over every transport, streamed and not."""
    with lost_calls_of_scenarios_excused(vllm_server):
        scenario(story)


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("store")
def test_a_defect_that_does_not_show_is_told(vllm_server: VllmServer) -> None:
    """KD101 is reported if the known defect does not show: the answer is right, or wrong in another way."""
    id = "harmony-takes-few-kinds-of-input"
    known = [{"defect": id, "over": ["responses"]}]
    story = of(
        {"name": "right", "user": "Hi", "say": "Hello.", "known": known},
        {"name": "wrong", "user": "Hi", "expect": {"text": "Bye."}, "say": "Hello.", "known": known},
    )
    every = load_defects()
    of_all = every[id].model_copy(update={"models": (), "versions": ""})
    (result,) = run(story, vllm_server, transports_of(["responses"], (False,)), defects={**every, id: of_all})
    assert [turn.state for turn in result.turns] == ["failed", "failed"]
    assert [[each.code for each in turn.findings if each.counts] for turn in result.turns] == [["KD101"]] * 2
    assert [each.known for each in result.turns[1].mismatches] == [""]


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("store", "background")
@pytest.mark.covers("VR-017", "LS-014")
def test_answers_in_the_background_are_those_of_responses(vllm_server: VllmServer) -> None:
    """A background answer is polled or replayed, and continued; other APIs cancel such turns."""
    story = of(
        {"name": "word", "user": "Remember heliotrope.", "background": True, "say": "I shall remember it."},
        {"name": "which", "user": "Which word?", "background": True, "say": "It is heliotrope."},
    )
    results = {
        each.transport.label: each for each in run(story, vllm_server, transports_of(["responses", "chat"]))
    }
    for label in ("responses", "responses-stream"):
        assert all(turn.state in ("passed", "known") for turn in results[label].turns), list(
            results[label].problems()
        )
        assert all(turn.exchange and turn.exchange.request["background"] for turn in results[label].turns)
    reason = "an answer is made in the background over the Responses API only"
    assert {turn.reason for label in ("chat", "chat-stream") for turn in results[label].turns} == {reason}


class _Forgetful(Transport):
    """A transport that leaves out the earlier turns."""

    def request(self, ask: TurnRequest) -> Json:
        return super().request(replace(ask, line=()))


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("store")
@pytest.mark.covers("LS-004")
def test_a_server_that_forgets_is_found(vllm_server: VllmServer) -> None:
    """Without the id of the previous turn, the prompt lacks its text, and a finding says so."""
    forgetful = _Forgetful("responses", "responses", stored=True)
    story = of(
        {"name": "word", "user": "Remember heliotrope.", "say": "I shall remember it."},
        {"name": "which", "user": "Which word?", "say": "It is heliotrope."},
    )
    right, wrong = run(story, vllm_server, [*transports_of(["responses-history"], (False,)), forgetful])
    assert not right.wrong
    assert [turn.wrong for turn in wrong.turns] == [False, True]
    findings = [
        (finding.code, finding.path, finding.kind) for finding in wrong.turns[1].findings if finding.counts
    ]
    assert findings == [("CP102", "$.responses.which.prompt", "message")] * 2


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("AG-004")
def test_what_becomes_of_a_missing_call(vllm_server: VllmServer) -> None:
    """Covers the turn that lacks the call, the turn with its output, a later turn, and an independent one."""
    turns = (
        {"name": "ask", "user": "Weather?", "expect": CALL, "say": "I do not know."},
        {"name": "output", "say": "Mild."},
        {"name": "more", "after": "ask", "user": "And tomorrow?", "say": "Who knows."},
        {"name": "other", "after": "start", "user": "Hello!", "say": "Hello."},
    )
    expected = {
        "error_stop": ["failed", "cancelled", "cancelled", "cancelled"],
        "ignore_stop": ["no call", "cancelled", "cancelled", "cancelled"],
        "ignore_continue": ["no call", "cancelled", "passed", "passed"],
    }
    for behaviour, states in expected.items():
        (result,) = run(
            of(*turns, missing_tool_call=behaviour), vllm_server, transports_of(["chat"], (True,))
        )
        assert [turn.state for turn in result.turns] == states, behaviour
        assert result.wrong == (behaviour == "error_stop")
        stopped = f"turn ask made no call ({behaviour})"
        if behaviour == "ignore_continue":
            assert result.turns[1].reason == "it sends outputs alone, and turn ask made no call"
        else:
            assert {turn.reason for turn in result.turns[1:]} == {stopped}


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("AG-004")
def test_what_is_not_as_expected_is_told(vllm_server: VllmServer) -> None:
    """Covers other arguments, another text, a limit, a missing event, and an answer instead of an error."""
    call = {"calls": [{"name": "get_weather", "arguments": {"city": "Oslo"}}]}
    story = of(
        {
            "name": "call",
            "user": "Weather in Paris?",
            "expect": {"calls": [{"name": "get_weather", "arguments": {"city": "Paris", "day": "today"}}]},
            "say": call,
        },
        {"name": "text", "expect": {"text": {"contains": "rain"}}, "say": "It is mild."},
        {"name": "cut", "user": "Go on.", "max_tokens": 2, "say": "One, two, three, four, five, six."},
        {
            "name": "events",
            "after": "start",
            "user": "Hi",
            "expect": {"events": {"responses": ["response.completed", "response.created"]}},
            "say": "Hello.",
        },
        {"name": "refused", "after": "start", "user": "Hi", "expect": {"status": "refused"}, "say": "Hello."},
        {"name": "orphan", "user": "Well?", "say": "Well."},
    )
    (result,) = run(story, vllm_server, transports_of(["responses"], (True,)))
    assert {turn.turn: [mismatch.what for mismatch in turn.mismatches] for turn in result.turns} == {
        "call": ["calls[0].arguments.city", "calls[0].arguments.day"],
        "text": ["text[0]"],
        "cut": ["status"],
        "events": ["events[1]"],
        "refused": ["status"],
        "orphan": [],
    }
    assert result.turns[0].mismatches[0].expected == '"Paris"'
    assert result.turns[2].mismatches[0].actual == "incomplete"
