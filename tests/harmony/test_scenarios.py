"""A scenario whose MCP server vLLM calls by itself."""

from __future__ import annotations

import pytest

from tests.own_server import OwnServer
from vllm_harness.scenarios.conversation import Served
from vllm_harness.scenarios.mcp_servers import launch_flags, mcp_servers
from vllm_harness.scenarios.reading import find_scenario, read_scenario
from vllm_harness.scenarios.running import run, ways_of

FIVE = ["find_user", "get_permissions", "read_file", "get_sample", "get_measurement"]


@pytest.mark.vllm_harmony
@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("gpt-oss")
@pytest.mark.vllm_needs("mcp", "responses", "store")
@pytest.mark.timeout(400)
@pytest.mark.covers("VM-003", "VM-006", "VR-068")
def test_five_calls_within_one_request(own_server: OwnServer) -> None:
    """With the server's state, and one more call in the turn after it."""
    story = read_scenario(find_scenario("support-desk-server-mcp"))
    with mcp_servers(story.mcp) as mcp:
        server = own_server(*launch_flags(mcp.values()))
        served = Served(server.endpoint, server.model, server.entry, server.vllm_version, True)
        (body,) = run(story, served, ways_of(["responses"], (False,)), mcp=mcp)
        assert [name for name, _ in mcp["container"].called] == [*FIVE, "get_measurement"]
    assert list(body.problems()) == []
