"""Opens the tools of a scenario: its functions, and the tools of its MCP servers."""

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
    """Yields the tools of a scenario.

    Args:
        scenario: the scenario.
        servers: the running MCP servers of the scenario, by label.

    Raises:
        McpError: a server refuses a session.
    """
    called_here = [server for server in servers.values() if server.data.called_by == "client"]
    with sessions(called_here) as clients:
        over_mcp = {name: client for client in clients for name in client.tools}

        def run(name: str, arguments: dict[str, Any]) -> ToolResult | None:
            if name in over_mcp:
                return over_mcp[name].call(name, arguments)
            tool = scenario.tools.get(name)
            output = output_for(tool, arguments) if tool else None
            return None if output is None else run_tool(output)

        listed = {name: tool for client in clients for name, tool in client.tools.items()}
        others = [_request_tool(server) for server in servers.values() if server not in called_here]
        built_in = [_BUILT_IN[name] for name in scenario.built_in]
        yield Toolbox({**scenario.tools, **listed}, (*others, *built_in), run)


_BUILT_IN: Mapping[BuiltIn, Mapping[str, Any]] = {
    "code_interpreter": {"type": "code_interpreter", "container": {"type": "auto"}},
    "web_search": {"type": "web_search_preview"},
}


def _request_tool(server: RunningMcp) -> dict[str, Any]:
    return {
        "type": "mcp",
        "server_label": server.label,
        "server_url": server.url,
        "headers": server.headers,
        "require_approval": server.data.approval,
    }
