"""Serves script books in front of a server without ASGI middleware, such as vLLM's Rust front end.

The server's interpreter runs it as `python vllm_harness_proxy.py PORT COMMAND...`: it starts COMMAND on a
Unix socket in the server's folder, forwards every request through `ScriptMiddleware`, and ends when COMMAND
does. So clients use an ordinary port. Imports nothing from the harness outside this folder.
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
import vllm_harness_asgi as asgi
import vllm_harness_names as names
from vllm_harness_middleware import ScriptMiddleware

# headers for a single connection (RFC 9110, 7.6.1), and headers that httpx and uvicorn add themselves
NOT_FORWARDED = {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"host", b"content-length"}


class Forward:
    """An ASGI application that forwards each request unchanged to an HTTP server on a Unix socket.

    Args:
        uds: the path of the socket; until a server listens there, the answer is 503.
    """

    def __init__(self, uds: str) -> None:
        one_each = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self.client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=uds, limits=one_each),
            base_url="http://vllm",
            timeout=None,
        )

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Forwards a request; if the client disconnects, the forwarded request is cancelled."""
        forwarding = asyncio.ensure_future(self._forward(scope, await asgi.body(receive), send))
        disconnect = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({forwarding, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            if forwarding.done():
                forwarding.result()
        finally:
            disconnect.cancel()
            forwarding.cancel()

    async def _forward(self, scope: dict[str, Any], body: bytes, send: Any) -> None:
        path = scope.get("raw_path") or scope["path"].encode()
        query = scope.get("query_string", b"")
        request = self.client.build_request(
            scope["method"],
            (path + b"?" + query if query else path).decode("latin-1"),
            headers=[(name, value) for name, value in scope["headers"] if name.lower() not in NOT_FORWARDED],
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
    forwarded = [(name.lower(), value) for name, value in headers if name.lower() not in NOT_FORWARDED]
    await send({"type": "http.response.start", "status": status, "headers": forwarded})


async def _send(send: Any, body: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def _disconnected(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def socket_path() -> str:
    """The path of vLLM's socket, in the server's folder."""
    return str(Path(os.environ[names.SCRIPT_DIR]) / "vllm.sock")


def proxy(port: int) -> uvicorn.Server:
    """Creates a server that answers on a port of this machine and forwards to vLLM."""
    config = uvicorn.Config(
        ScriptMiddleware(Forward(socket_path()), in_vllm=False),
        host="127.0.0.1",
        port=port,
        lifespan="off",
        log_level="warning",
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def main(port: int, command: list[str]) -> int:
    """Runs vLLM and the proxy until vLLM ends, and returns vLLM's exit code."""
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
