"""The tool server without vLLM: its answers to a client, and the restrictions on the code that it runs."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp import ClientSession
from mcp.client.sse import sse_client

from tests.tool_server import restricted
from tests.tool_server.running import ToolServer


async def call(server: ToolServer, tool: str, arguments: dict[str, Any], **headers: str) -> Any:
    """Calls a tool in a new session, and returns the result."""
    async with (
        sse_client(f"http://{server.address}/sse", headers=headers) as streams,
        ClientSession(*streams) as session,
    ):
        initialized = await session.initialize()
        assert initialized.server_info.name == server.name
        assert tool in [listed.name for listed in (await session.list_tools()).tools]
        return await session.call_tool(tool, arguments)


async def test_python_over_sse(tmp_path: Path) -> None:
    with ToolServer("python", tmp_path) as server:
        result = await call(server, "python", {"code": "print(6 * 7)"})
        assert result.content[0].text == "42\n"
        assert server.journal("python") == [{"what": "python", "code": "print(6 * 7)"}]


async def test_a_tool_error_is_in_the_result(tmp_path: Path) -> None:
    with ToolServer("container", tmp_path) as server:
        result = await call(server, "exec", {"cmd": ["rm", "-rf", "/"]})
        assert result.is_error
        assert "command not found" in result.content[0].text


async def test_sessions_need_the_key(tmp_path: Path) -> None:
    with ToolServer("python", tmp_path, key="secret") as server:
        code = {"code": "print(1)"}
        with pytest.raises(BaseException, match=r"unhandled errors|401"):
            await call(server, "python", code, **{"x-session-id": "1"})
        right = {"x-session-id": "2", "authorization": "Bearer secret"}
        assert (await call(server, "python", code, **right)).content[0].text == "1\n"
        assert [session["allowed"] for session in server.journal("session")] == [False, True]


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("import socket; socket.socket()", "PermissionError"),
        ("import subprocess; subprocess.run(['ls'])", "PermissionError"),
        ("import os; os.fork()", "PermissionError"),
        ("import os; os.system('ls')", "PermissionError"),
        ("x = bytearray(2**30)", "MemoryError"),
        ("open('big', 'wb').write(bytes(2**21))", "OSError"),
        ("while True: pass", "TimeoutError"),
        ("import os; print(os.listdir(), dict(os.environ).get('PATH'))", "[] None"),
        ("1 / 0", "ZeroDivisionError"),
        ("print(open('/etc/passwd').read())", "PermissionError"),
        ("open('/tmp/vh-not-here', 'w')", "PermissionError"),
        ("import os; os.remove('/tmp/vh-not-here')", "PermissionError"),
        ("import os; os.listdir('/')", "PermissionError"),
        ("import os; os.kill(os.getppid(), 0)", "PermissionError"),
        ("open('a', 'w').write('mine'); import os; os.rename('a', 'b'); print(open('b').read())", "mine"),
        ("import json, re, decimal, sqlite3; print(json.dumps([1]))", "[1]"),
    ],
    ids=[
        *("network", "subprocess", "fork", "shell", "memory", "size", "time", "environment", "error"),
        *("reading", "writing", "removing", "listing", "killing", "own files", "library"),
    ],
)
def test_code_is_restricted(code: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restricted, "SECONDS", 2)
    assert output in restricted.run(code)


def test_the_server_ends_with_its_owner(tmp_path: Path) -> None:
    owner = (
        "import os, pathlib, sys; from tests.tool_server.running import ToolServer; "
        "server = ToolServer('python', pathlib.Path(sys.argv[1])).__enter__(); "
        "print(server._process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run([sys.executable, "-c", owner, str(tmp_path)], capture_output=True, text=True)
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(ended.stdout)).wait(120)
