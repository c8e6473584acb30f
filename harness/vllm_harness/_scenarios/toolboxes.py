"""The tools of a scenario while it runs: functions from its data, and tools of its MCP servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from vllm_harness._scenarios.format import BuiltIn, Scenario
from vllm_harness._scenarios.mcp_client import sessions
from vllm_harness._scenarios.mcp_servers import RunningMcp
from vllm_harness._scenarios.tools import Toolbox, ToolResult, output_for, run_tool


@contextmanager
def opened(scenario: Scenario, servers: Mapping[str, RunningMcp]) -> Iterator[Toolbox]:
    """The tools of a scenario.

    Args:
        scenario: whose functions are data.
        servers: its MCP servers, running.

    Raises:
        McpError: one of them refuses a session.
    """
    ours = [server for server in servers.values() if server.data.called_by == "client"]
    with sessions(ours) as clients:
        over_mcp = {name: client for client in clients for name in client.tools}

        def run(name: str, arguments: dict[str, Any]) -> ToolResult | None:
            if name in over_mcp:
                return over_mcp[name].call(name, arguments)
            tool = scenario.tools.get(name)
            output = output_for(tool, arguments) if tool else None
            return None if output is None else run_tool(output)

        listed = {name: tool for client in clients for name, tool in client.tools.items()}
        theirs = [_of_request(each) for each in servers.values() if each not in ours]
        built_in = [_BUILT_IN[name] for name in scenario.built_in]
        yield Toolbox({**scenario.tools, **listed}, (*theirs, *built_in), run)


_BUILT_IN: Mapping[BuiltIn, Mapping[str, Any]] = {
    "code_interpreter": {"type": "code_interpreter", "container": {"type": "auto"}},
    "web_search": {"type": "web_search_preview"},
}


def _of_request(server: RunningMcp) -> dict[str, Any]:
    return {
        "type": "mcp",
        "server_label": server.label,
        "server_url": server.url,
        "headers": server.headers,
        "require_approval": server.data.approval,
    }
