"""ASGI in small: whole bodies in and out. Runs inside the server, imports nothing of the harness."""

from __future__ import annotations

import json
from typing import Any

MAX_BODY = 64 * 2**20


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
