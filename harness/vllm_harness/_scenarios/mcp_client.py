"""The client of a scenario's MCP servers: offers their tools to the model as functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_harness._scenarios.format import Tool
from vllm_harness._scenarios.mcp_servers import McpError, RunningMcp
from vllm_harness._scenarios.tools import ToolResult

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal
    from mcp import ClientSession


@dataclass(frozen=True)
class McpTools:
    """The tools of an MCP server, called in a session with it.

    Attributes:
        tools: the tools that the server lists, by name.
    """

    tools: Mapping[str, Tool]
    _session: ClientSession
    _portal: BlockingPortal

    def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Calls a tool, and returns its result."""
        result: Any = self._portal.call(self._session.call_tool, name, arguments)
        text = "".join(part.text for part in result.content if part.type == "text")
        images = [
            f"data:{part.mime_type};base64,{part.data}" for part in result.content if part.type == "image"
        ]
        return ToolResult(text, bool(result.is_error), tuple(images))


@contextmanager
def sessions(servers: Sequence[RunningMcp]) -> Iterator[list[McpTools]]:
    """Opens a session with each server.

    Raises:
        McpError: a server refuses the session.
    """
    if not servers:
        yield []
        return
    from anyio.from_thread import start_blocking_portal

    with start_blocking_portal() as portal, ExitStack() as stack:
        yield [_open(server, portal, stack) for server in servers]


def _open(server: RunningMcp, portal: BlockingPortal, stack: ExitStack) -> McpTools:
    try:
        session = stack.enter_context(portal.wrap_async_context_manager(_session(server)))
        listed = portal.call(session.list_tools)
    except Exception as error:  # a transport raises exception groups of any kind
        raise McpError(
            f"the MCP server {server.label!r} refuses a session: {_innermost(error)}",
            hint="check that `sends` is its `token`",
        ) from error
    tools = {
        tool.name: server.data.tools[tool.name].model_copy(
            update={"description": tool.description or "", "parameters": dict(tool.input_schema)}
        )
        for tool in listed.tools
    }
    return McpTools(tools, session, portal)


def _session(server: RunningMcp) -> AbstractAsyncContextManager[ClientSession]:
    from mcp import ClientSession
    from mcp.client.sse import sse_client

    @asynccontextmanager
    async def opened() -> Any:
        async with (
            sse_client(server.url, headers=server.headers) as streams,
            ClientSession(*streams) as session,
        ):
            await session.initialize()
            yield session

    return opened()


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
