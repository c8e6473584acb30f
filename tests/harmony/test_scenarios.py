"""A scenario whose MCP server vLLM calls by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.own_server import OwnServer
from vllm_harness.scenarios.conversation import Served
from vllm_harness.scenarios.format import Scenario
from vllm_harness.scenarios.mcp_servers import RunningMcp, launch_flags, mcp_servers
from vllm_harness.scenarios.reading import find_scenario, read_scenario
from vllm_harness.scenarios.running import run, transports_of

FIVE = ["find_user", "get_permissions", "read_file", "get_sample", "get_measurement"]


pytestmark = [
    pytest.mark.vllm_harmony,
    pytest.mark.vllm_scripted,
    pytest.mark.vllm_model("gpt-oss"),
    pytest.mark.vllm_needs("mcp", "responses", "store"),
    pytest.mark.timeout(400),
]


Held = Callable[[str, bool], list[str]]


@pytest.fixture(scope="module")
def story() -> Scenario:
    """The support desk."""
    return read_scenario(find_scenario("support-desk-server-mcp"))


@pytest.fixture(scope="module")
def mcp(story: Scenario) -> Iterator[dict[str, RunningMcp]]:
    """Its MCP server."""
    with mcp_servers(story.mcp) as running:
        yield running


@pytest.fixture
def held(own_server: OwnServer, story: Scenario, mcp: dict[str, RunningMcp]) -> Held:
    """Holds the conversation over a transport: the tools that were called; fails with all that is wrong."""

    def hold(transport: str, streamed: bool) -> list[str]:
        server = own_server(*launch_flags(mcp.values()))
        served = Served(server.endpoint, server.model, server.entry, server.vllm_version, True)
        mcp["container"].called.clear()
        (conversation,) = run(story, served, transports_of([transport], (streamed,)), mcp=mcp)
        assert not conversation.wrong, "\n".join(conversation.problems())
        return [name for name, _ in mcp["container"].called]

    return hold


@pytest.mark.covers("VM-003", "VM-006", "VR-068")
def test_five_calls_within_one_request(held: Held) -> None:
    """With the server's state, and one more call in the turn after it."""
    assert held("responses", False) == [*FIVE, "get_measurement"]


@pytest.mark.covers("VM-005")
@pytest.mark.vllm_known_defect("mcp-call-is-named-otherwise-in-the-stream")
def test_five_calls_within_one_streamed_request(held: Held) -> None:
    held("responses", True)


@pytest.mark.covers("VM-006")
@pytest.mark.vllm_known_defect("harmony-takes-few-kinds-of-input")
def test_five_calls_sent_back_as_history(held: Held) -> None:
    held("responses-history", False)
