"""Records a conversation with a real server as a cassette, and replays it against the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lost_calls import check_replay, lost_calls_of_scenarios_excused
from vllm_harness._cassettes.checking import check
from vllm_harness._cassettes.format import Cassette, Recorded
from vllm_harness._cassettes.reading import read
from vllm_harness._cassettes.recording import of_conversation
from vllm_harness._cassettes.replaying import replay
from vllm_harness._cassettes.writing import write
from vllm_harness._exchange.server import VllmServer
from vllm_harness._files.redaction import Redactor
from vllm_harness._scenarios.reading import find_scenario, read_scenario
from vllm_harness._testing.scenarios import ScenarioRunner

STORY, SHORT_STORY = "etl-branches", "etl-outputs-only"
pytestmark = [pytest.mark.vllm_scripted, pytest.mark.vllm_needs("tools", "store")]


@pytest.mark.parametrize(
    ("transport", "streamed"),
    [("responses", True), ("responses-history", False), ("chat", True), ("messages", False)],
)
def test_a_conversation_is_recorded_checked_and_the_same_again(
    transport: str,
    streamed: bool,
    scenario: ScenarioRunner,
    vllm_server: VllmServer,
    tmp_path: Path,
) -> None:
    with lost_calls_of_scenarios_excused(vllm_server):
        result = scenario(STORY, transports=[transport], streamed=(streamed,))[0]
    recorded = Recorded(
        by="scenario", model=vllm_server.entry.name, vllm=vllm_server.vllm_version, lane="scripted"
    )
    path = tmp_path / "a.yaml.gz"
    write(of_conversation(read_scenario(find_scenario(STORY)), result, recorded), path, Redactor())
    again = read(path)
    assert len(again.cassette.exchanges) == len(result.turns)
    assert [each for each in check(again) if each.finding.counts] == []
    check_replay(replay(again.cassette, vllm_server), vllm_server)


def test_what_comes_otherwise_is_told(scenario: ScenarioRunner, vllm_server: VllmServer) -> None:
    story = read_scenario(find_scenario(SHORT_STORY))
    result = scenario(SHORT_STORY, transports=["chat"], streamed=(False,))[0]
    cassette = of_conversation(story, result, Recorded(model=vllm_server.entry.name))
    first = cassette.exchanges[0]
    body = {**first.response.body, "object": "chat.completion.other"}
    changed = first.model_copy(update={"response": first.response.model_copy(update={"body": body})})
    others = Cassette.model_validate({**dict(cassette), "exchanges": (changed, *cassette.exchanges[1:])})
    played = list(replay(others, vllm_server))
    assert [each.turn for each in played if each.differences] == [first.turn]
    differences = played[0].differences
    assert {each.layer for each in differences} == {"protocol"}
    assert any((each.left, each.right) == ('"chat.completion.other"', "nothing") for each in differences)
