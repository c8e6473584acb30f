"""Runs the MCP servers of a scenario with the official `mcp` package."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm_harness._errors import HarnessError, UsageError
from vllm_harness._exchange.building import DATA_URL
from vllm_harness._scenarios.format import McpServer, Tool
from vllm_harness._scenarios.tools import ToolResult, bearer, outcome_of, output_for

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

HOST = "127.0.0.1"
READY_S = 30.0
SESSION_ID = "x-session-id"


class McpError(HarnessError):
    """An MCP server of a scenario does not start, or refuses a session."""


@dataclass
class RunningMcp:
    """A running MCP server, which clients reach over SSE.

    Attributes:
        label: the label of the server.
        data: the server as the scenario describes it.
        port: the port on which it listens.
        called: the name and the arguments of each call of its tools. vLLM also calls a tool
            `cleanup_session` after a request, which no server needs to have.
    """

    label: str
    data: McpServer
    port: int
    called: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Its address, in the form that `vllm serve --tool-server` expects."""
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """The URL to which a client connects."""
        return f"http://{self.address}/sse"

    @property
    def headers(self) -> dict[str, str]:
        """The headers that a session sends."""
        return bearer(self.data.sends if self.data.sends is not None else self.data.token)


def launch_flags(servers: Iterable[RunningMcp]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Makes the flags and environment variables for a vLLM that calls MCP servers; empty if it calls none.

    vLLM uses a server's tools if it knows the server's label (`container` on gpt-oss) and the variable
    contains that label.
    """
    called = [server for server in servers if server.data.called_by == "server"]
    if not called:
        return (), {}
    labels = ",".join(server.label for server in called)
    flags = ("--tool-server", ",".join(server.address for server in called))
    return flags, {"VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS": labels}


@contextmanager
def mcp_servers(servers: Mapping[str, McpServer]) -> Iterator[dict[str, RunningMcp]]:
    """Runs the MCP servers; yields them by label.

    Raises:
        UsageError: the package `mcp` is not installed.
        McpError: a server does not start.
    """
    with ExitStack() as stack:
        yield {label: stack.enter_context(_running(label, data)) for label, data in servers.items()}


@contextmanager
def _running(label: str, data: McpServer) -> Iterator[RunningMcp]:
    try:
        import uvicorn
    except ImportError as error:
        raise _missing_package() from error
    with socket.create_server((HOST, 0)) as listener:
        running = RunningMcp(label, data, listener.getsockname()[1])
        config = uvicorn.Config(
            _application(running), lifespan="off", log_level="error", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            _wait(server, label)
            yield running
        finally:
            server.should_exit = server.force_exit = True
            thread.join(READY_S)


def _missing_package() -> UsageError:
    return UsageError(
        "a scenario with MCP servers requires the package mcp", hint="pip install 'vllm-harness[mcp]'"
    )


def _wait(server: Any, label: str) -> None:
    ends = time.monotonic() + READY_S
    while not server.started:
        if time.monotonic() > ends:
            raise McpError(f"the MCP server {label!r} did not start in {READY_S:g} s", hint="try again")
        time.sleep(0.01)


def _application(running: RunningMcp) -> Any:
    """Makes the ASGI application of a server, which requires the token as `_allowed` says."""
    try:
        from mcp.server.sse import SseServerTransport
        from starlette.applications import Starlette
        from starlette.responses import PlainTextResponse, Response
        from starlette.routing import Mount, Route
    except ImportError as error:
        raise _missing_package() from error
    transport, server = SseServerTransport("/messages/"), _server(running)

    async def sse(request: Any) -> Response:
        if not _allowed(running.data, request.headers):
            return PlainTextResponse("the token is missing or wrong", status_code=401)
        async with transport.connect_sse(request.scope, request.receive, request._send) as streams:
            await server.run(streams[0], streams[1], server.create_initialization_options())
        return Response()

    return Starlette(routes=[Route("/sse", sse), Mount("/messages/", app=transport.handle_post_message)])


def _allowed(data: McpServer, headers: Mapping[str, str]) -> bool:
    """Checks the token; vLLM lists tools when it starts, without a session id and without a token."""
    listing = data.called_by == "server" and SESSION_ID not in headers
    return data.token is None or listing or headers.get("authorization") == f"Bearer {data.token}"


def _server(running: RunningMcp) -> Server[Any]:
    from mcp import types
    from mcp.server.lowlevel import Server

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_listed(name, tool) for name, tool in running.data.tools.items()])

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = dict(params.arguments or {})
        tool = running.data.tools.get(params.name)
        if tool is not None:
            running.called.append((params.name, arguments))
        outcome = await _answer(tool, params.name, arguments)
        return types.CallToolResult(content=_content(outcome), is_error=outcome.failed)

    return Server(
        running.label, instructions=running.data.description, on_list_tools=list_tools, on_call_tool=call_tool
    )


def _listed(name: str, tool: Tool) -> Any:
    from mcp import types

    return types.Tool(
        name=name, description=tool.description, input_schema={"type": "object", **tool.parameters}
    )


def _content(outcome: ToolResult) -> list[Any]:
    from mcp import types

    images = [
        types.ImageContent(type="image", data=match["data"], mime_type=match["type"])
        for match in map(DATA_URL.fullmatch, outcome.images)
        if match
    ]
    text = [types.TextContent(type="text", text=outcome.text)] if outcome.text or not images else []
    return [*text, *images]


async def _answer(tool: Tool | None, name: str, arguments: Mapping[str, Any]) -> ToolResult:
    import anyio

    output = output_for(tool, arguments) if tool else None
    if output is None:
        return ToolResult(f"{name} has no output for {dict(arguments)}", failed=True)
    await anyio.sleep(output.seconds)
    return outcome_of(output)
