"""Script books in front of a server that takes no ASGI middleware, as vLLM's Rust front end.

Run by the server's interpreter as `python vllm_harness_proxy.py PORT COMMAND...`: starts COMMAND on a Unix
socket in its own folder, passes every request on to it through the same middleware, and ends with it. So any
client talks to a plain port here too. Imports nothing of the harness.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import uvicorn
import vllm_harness_names as names
from vllm_harness_middleware import ScriptMiddleware

# for a single connection, not end to end (RFC 9110, 7.6.1), or written again
NOT_PASSED_ON = {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"host", b"content-length"}


class Forward:
    """An ASGI application: passes each request on to an HTTP server on a Unix socket, unchanged.

    Args:
        uds: path of the socket; until a server listens there, requests are answered with 503.
    """

    def __init__(self, uds: str) -> None:
        self.client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=uds, limits=httpx.Limits(max_connections=None)),
            base_url="http://vllm",
            timeout=None,
        )

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Handles a request; a client that goes away ends it upstream as well."""
        passing = asyncio.ensure_future(self._pass_on(scope, await _body(receive), send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({passing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if passing.done():
                passing.result()
        finally:
            leaving.cancel()
            passing.cancel()

    async def _pass_on(self, scope: dict[str, Any], body: bytes, send: Any) -> None:
        path = scope.get("raw_path") or scope["path"].encode()
        query = scope.get("query_string", b"")
        request = self.client.build_request(
            scope["method"],
            (path + b"?" + query if query else path).decode("latin-1"),
            headers=[(name, value) for name, value in scope["headers"] if name.lower() not in NOT_PASSED_ON],
            content=body,
        )
        try:
            answer = await self.client.send(request, stream=True)
        except httpx.TransportError as error:
            await _start(send, 503, [(b"content-type", b"text/plain")])
            await _send(send, f"vLLM does not answer: {error}".encode(), more=False)
            return
        try:
            await _start(send, answer.status_code, answer.headers.raw)
            async for chunk in answer.aiter_raw():
                await _send(send, chunk, more=True)
            await _send(send, b"", more=False)
        finally:
            await answer.aclose()


async def _start(send: Any, status: int, headers: list[tuple[bytes, bytes]]) -> None:
    passed = [(name.lower(), value) for name, value in headers if name.lower() not in NOT_PASSED_ON]
    await send({"type": "http.response.start", "status": status, "headers": passed})


async def _send(send: Any, body: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def _body(receive: Any) -> bytes:
    chunks = []
    while True:
        message = await receive()
        chunks.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(chunks)


async def _left(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def socket_path() -> str:
    """Where vLLM listens: in the server's own folder."""
    return str(Path(os.environ[names.SCRIPT_DIR]) / "vllm.sock")


def proxy(port: int) -> uvicorn.Server:
    """A server at a port, in front of vLLM."""
    config = uvicorn.Config(
        ScriptMiddleware(Forward(socket_path())),
        host="127.0.0.1",
        port=port,
        lifespan="off",
        log_level="warning",
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def main(port: int, command: list[str]) -> int:
    """Serves until vLLM ends; gives its exit code."""
    vllm = subprocess.Popen([*command, "--uds", socket_path()])
    server = proxy(port)

    def end_with_vllm() -> None:
        vllm.wait()
        server.should_exit = True

    threading.Thread(target=end_with_vllm, daemon=True).start()
    server.run()
    vllm.send_signal(signal.SIGTERM)
    return vllm.wait()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
