"""Tool server: `python -m tests.tool_server NAME PORT [--journal FILE] [--key KEY] [--owned]`, SSE at /sse.

With `--owned` it ends when its standard input is closed, and thus with the process that started it.

NAME is the namespace that vLLM looks for: `python` (one tool of that name that runs code and returns its
output, as in the reference server of gpt-oss), `container` (`exec`, `feed`) or `browser` (`search`, `open`,
`find`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from starlette.responses import PlainTextResponse

from tests.tool_server import restricted
from vllm_harness._scripted.in_server import vllm_harness_asgi as asgi

PYTHON = "Executes Python code; the output is what it prints. Nothing is kept between calls."
PAGES = {"vllm": "vLLM is a library for LLM inference.", "paris": "Paris is the capital of France."}


def python_server(journal: Journal) -> MCPServer:
    """A code interpreter; the tool's schema is not in the prompt, since it takes plain text."""
    server = MCPServer(name="python", instructions=PYTHON)

    @server.tool(name="python", description="Runs Python code", meta={"include_in_prompt": False})
    def python(code: str) -> str:
        journal.write("python", code=code)
        return restricted.run(code)

    return server


def container_server(journal: Journal) -> MCPServer:
    """A container with a single command, echo."""
    server = MCPServer(name="container", instructions="Runs commands.")

    @server.tool(name="exec", description="Runs a command")
    def execute(cmd: list[str]) -> str:
        journal.write("exec", cmd=cmd)
        if cmd[:1] != ["echo"]:
            raise ToolError(f"{cmd[:1]}: command not found")
        return " ".join(cmd[1:])

    @server.tool(name="feed", description="Feeds characters to a session")
    def feed(chars: str) -> str:
        journal.write("feed", chars=chars)
        return chars

    return server


def browser_server(journal: Journal) -> MCPServer:
    """A browser for two web pages."""
    server = MCPServer(name="browser", instructions="Searches the web.")

    @server.tool(name="search", description="Searches")
    def search(query: str) -> str:
        journal.write("search", query=query)
        results = [text for key, text in PAGES.items() if key in query.lower()]
        return "\n".join(results) or "nothing found"

    @server.tool(name="open", description="Opens a page")
    def open_page(id: int | None = None, cursor: int | None = None, url: str = "") -> str:
        journal.write("open", id=id, cursor=cursor, url=url)
        return next(iter(PAGES.values()))

    @server.tool(name="find", description="Finds a text in a page")
    def find(pattern: str, url: str) -> str:
        journal.write("find", pattern=pattern, url=url)
        return "found" if pattern in "".join(PAGES.values()) else "not found"

    return server


SERVERS = {"python": python_server, "container": container_server, "browser": browser_server}


class Journal:
    """Logs each session and call as a line of JSON, so that a test can read them."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def write(self, what: str, **fields: Any) -> None:
        """Writes one entry."""
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps({"what": what, **fields}) + "\n")


class SessionsNeedTheKey:
    """ASGI middleware: listing tools needs no key; a request's session (`x-session-id`) needs one."""

    def __init__(self, app: Any, key: str | None, journal: Journal) -> None:
        self._app, self._key, self._journal = app, key, journal

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = {name.decode().lower(): value.decode() for name, value in scope.get("headers", ())}
        if scope["type"] == "http" and scope["path"] == "/sse" and "x-session-id" in headers:
            given = headers.get("authorization")
            allowed = self._key is None or given == f"Bearer {self._key}"
            self._journal.write("session", id=headers["x-session-id"], authorization=given, allowed=allowed)
            if not allowed:
                await PlainTextResponse("a key is needed", status_code=401)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class OnlyThisUser:
    """ASGI middleware: refuses other users of the machine, so that they cannot run code."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http" and not asgi.of_this_user(scope):
            await asgi.refuse_other_user(send)
        else:
            await self._app(scope, receive, send)


def _end_with_owner() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    """Serves until it is killed or its owner has ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=list(SERVERS))
    parser.add_argument("port", type=int)
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--key")
    parser.add_argument("--owned", action="store_true")
    given = parser.parse_args()
    if given.owned:
        threading.Thread(target=_end_with_owner, daemon=True).start()
    journal = Journal(given.journal)
    app = SessionsNeedTheKey(SERVERS[given.name](journal).sse_app(), given.key, journal)
    uvicorn.run(OnlyThisUser(app), host="127.0.0.1", port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
