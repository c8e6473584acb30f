"""ASGI in small: whole bodies in and out, and whose a request is.

Runs inside the server, imports nothing of the harness.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

MAX_BODY = 64 * 2**20
CONNECTIONS = Path("/proc/net/tcp")
ESTABLISHED = "01"


async def body(receive: Any) -> bytes:
    """A request's whole body."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b"".join(chunks)
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if not message.get("more_body") or size > MAX_BODY:
            return b"".join(chunks)


def replay(content: bytes, receive: Any) -> Any:
    """A `receive` that gives this body first, and what `receive` gives after it."""
    sent = False

    async def first_the_body() -> Any:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": content, "more_body": False}

    return first_the_body


def with_length_unknown(scope: dict[str, Any]) -> dict[str, Any]:
    """The scope without Content-Length, for a body that was changed."""
    return {**scope, "headers": [(k, v) for k, v in scope["headers"] if k.lower() != b"content-length"]}


async def send_json(send: Any, status: int, value: Any) -> None:
    """A whole JSON answer."""
    content = json.dumps(value).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": False})


def of_this_user(scope: dict[str, Any]) -> bool:
    """Whether a request comes from a process of the server's own user, as the kernel knows the connection.

    A port of the loopback interface is open to every user of the machine.
    """
    if not scope.get("client") or not scope.get("server"):
        return False
    wanted = [_as_listed(*scope["client"]), _as_listed(*scope["server"]), ESTABLISHED]
    for line in CONNECTIONS.read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1:4] == wanted:  # once it was closed, the kernel names root
            return int(fields[7]) == os.geteuid()
    return False


def _as_listed(host: str, port: int) -> str:
    """An IPv4 address as proc(5) lists it; one that nothing has where it is none."""
    try:
        return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"
    except OSError:
        return ""


async def refuse_stranger(send: Any) -> None:
    """Answers a request that only the server's own user may make."""
    message = "this is for the user who runs this server, from this machine"
    error = {"message": message, "type": "harness_error", "code": "stranger", "param": None}
    await send_json(send, 403, {"error": error})
