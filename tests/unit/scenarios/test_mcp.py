"""A scenario's MCP servers, called by the harness's client."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_harness._errors import UsageError
from vllm_harness._scenarios.format import Scenario
from vllm_harness._scenarios.mcp_servers import McpError, mcp_servers
from vllm_harness._scenarios.reading import find_scenario, read_scenario
from vllm_harness._scenarios.toolboxes import opened

NUMBERED = {
    f"tool_{number}": {
        "description": f"Tool {number}",
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        "outputs": [{"when": {"n": number}, "output": "x", "times": 2**19}, {"error": "no"}],
    }
    for number in range(20)
}


def scenario(**server: Any) -> Scenario:
    turns = [{"name": "ask", "user": "Hi", "say": "Hello."}]
    return Scenario.model_validate({"scenario": 1, "mcp": {"desk": server}, "turns": turns})


def test_tools_are_listed_and_called_over_mcp() -> None:
    """Lists twenty tools, and calls one that returns a long text but fails for other arguments."""
    story = scenario(tools=NUMBERED, token="right")
    with mcp_servers(story.mcp) as servers, opened(story, servers) as toolbox:
        assert list(toolbox.functions) == list(NUMBERED)
        assert toolbox.functions["tool_7"].parameters == NUMBERED["tool_7"]["parameters"]
        assert toolbox.functions["tool_7"].description == "Tool 7"
        assert toolbox.run("tool_7", {"n": 7}) == ("x" * 2**19, False, ())
        assert toolbox.run("tool_7", {"n": 8}) == ("no", True, ())
        assert toolbox.run("tool_20", {"n": 8}) is None
        assert servers["desk"].called == [("tool_7", {"n": 7}), ("tool_7", {"n": 8})]


def test_only_the_right_token_is_accepted() -> None:
    for sends in ("wrong", ""):
        story = scenario(tools=NUMBERED, token="right", sends=sends)
        with (
            mcp_servers(story.mcp) as servers,
            pytest.raises(McpError, match=r"desk.*401"),
            opened(story, servers),
        ):
            pass
    story = scenario(tools=NUMBERED, token="right", sends="right")
    with mcp_servers(story.mcp) as servers, opened(story, servers) as toolbox:
        assert toolbox.run("tool_1", {"n": 0}) == ("no", True, ())


def test_a_server_that_vllm_calls_is_a_tool_of_the_request() -> None:
    story = scenario(tools=NUMBERED, token="right", called_by="server")
    with mcp_servers(story.mcp) as servers, opened(story, servers) as toolbox:
        assert not toolbox.functions
        (tool,) = toolbox.of_server
        assert (tool["server_label"], tool["headers"]) == ("desk", {"Authorization": "Bearer right"})
        assert tool["server_url"] == f"http://{servers['desk'].address}/sse"


def test_the_desk_has_the_same_tools_over_mcp() -> None:
    over_mcp, functions = (
        read_scenario(find_scenario(name)) for name in ("support-desk-mcp", "support-desk")
    )
    assert over_mcp.mcp["desk"].tools == functions.tools
    assert over_mcp.turns == functions.turns


def test_a_server_without_tools_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "story.yaml"
    path.write_text("scenario: 1\nmcp:\n  desk: {token: x}\nturns: [{name: a, user: Hi}]\n")
    with pytest.raises(UsageError, match=r"story\.yaml:3: mcp\.desk: the MCP server has no tools"):
        read_scenario(path)
