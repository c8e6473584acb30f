"""Helpers for ASGI: reading and sending whole bodies, and finding the user who sent a request.

Runs inside the server and imports nothing from the harness.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Any

MAX_BODY = 64 * 2**20
CONNECTIONS = Path("/proc/net/tcp")
TCP_ESTABLISHED = 1
# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h
NETLINK_SOCK_DIAG = 4
NLM_F_REQUEST = 1
NLMSG_ERROR = 2
SOCK_DIAG_BY_FAMILY = 20
NO_COOKIE = 2**32 - 1
UID_AT = 16 + 4 + 48 + 12  # nlmsghdr, four bytes, inet_diag_sockid, three u32


async def body(receive: Any) -> bytes:
    """Reads the whole body of a request, up to a little more than `MAX_BODY` bytes."""
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


def json_object(content: bytes) -> dict[str, Any] | None:
    """Parses a body as a JSON object; None if it is anything else."""
    try:
        value = json.loads(content)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


async def json_body(
    app: Any, scope: dict[str, Any], receive: Any, send: Any
) -> tuple[bytes, dict[str, Any] | None]:
    """Reads the body of a request and returns it, raw and as a JSON object.

    If the body is not a JSON object, the application `app` answers the request, and the object is None.
    """
    raw = await body(receive)
    value = json_object(raw)
    if value is None:
        await app(scope, replay(raw, receive), send)
    return raw, value


def replay(content: bytes, receive: Any) -> Any:
    """An ASGI `receive` function that returns `content` first, and then what `receive` returns."""
    sent = False

    async def receive_body_first() -> Any:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": content, "more_body": False}

    return receive_body_first


def route(scope: dict[str, Any]) -> str:
    """The path of a request, without the prefix that `--root-path` sets."""
    path, root = str(scope.get("path", "")), scope.get("root_path", "")
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path


def with_length_unknown(scope: dict[str, Any]) -> dict[str, Any]:
    """The scope without the header Content-Length, for a request whose body was changed."""
    return {**scope, "headers": [(k, v) for k, v in scope["headers"] if k.lower() != b"content-length"]}


async def send_json(send: Any, status: int, value: Any) -> None:
    """Sends a value as a complete JSON answer."""
    content = json.dumps(value).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": False})


def of_this_user(scope: dict[str, Any]) -> bool:
    """Whether, according to the kernel, the server's own user opened the connection of a request.

    The check is needed because every user of the machine can connect to a port of the loopback interface.
    """
    if not scope.get("client") or not scope.get("server"):
        return False
    client, server = scope["client"], scope["server"]
    try:
        owner = _owner_by_netlink(client, server)
    except OSError:  # no such connection; or a kernel, or a container, without sock_diag(7)
        owner = _owner_as_listed(client, server)
    return owner == os.geteuid()


def _owner_by_netlink(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Looks up the uid of the client in an open IPv4 connection with sock_diag(7); None if there is none.

    Reading the list in proc(5) instead takes milliseconds if the machine has many connections.

    Raises:
        OSError: the kernel has no such connection, or does not support sock_diag requests.
    """
    try:
        addresses = [socket.inet_aton(client[0]), socket.inet_aton(server[0])]
    except OSError:
        return None
    ports = struct.pack("!HH", client[1], server[1])
    connection = ports + b"".join(address.ljust(16, b"\0") for address in addresses)
    request = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 1 << TCP_ESTABLISHED)
    request += connection + struct.pack("=III", 0, NO_COOKIE, NO_COOKIE)
    header = struct.pack("=IHHII", 16 + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(1)
        kernel.sendto(header + request, (0, 0))
        reply = kernel.recv(4096)
    kind = struct.unpack_from("=H", reply, 4)[0]
    if kind == NLMSG_ERROR:
        code = -struct.unpack_from("=i", reply, 16)[0]
        raise OSError(code, os.strerror(code))
    if reply[17] != TCP_ESTABLISHED or reply[20:56] != connection:  # for a closed one, the kernel names root
        return None
    return int(struct.unpack_from("=I", reply, UID_AT)[0])


def _owner_as_listed(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Looks up the uid of a client in the connections that proc(5) lists; None if it is not listed."""
    connection = [_as_listed(*client), _as_listed(*server), f"{TCP_ESTABLISHED:02X}"]
    for line in CONNECTIONS.read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1:4] == connection:
            return int(fields[7])
    return None


def _as_listed(host: str, port: int) -> str:
    """An IPv4 address as proc(5) lists it; empty for any other address."""
    try:
        return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"
    except OSError:
        return ""


def error(message: str, code: str) -> dict[str, Any]:
    """An error that the harness itself reports, in OpenAI's format."""
    return {"message": message, "type": "harness_error", "code": code, "param": None}


async def refuse_other_user(send: Any) -> None:
    """Answers a request that only the server's own user may send with HTTP 403."""
    message = "only the user who runs this server may do this, from the same machine"
    await send_json(send, 403, {"error": error(message, "other_user")})
