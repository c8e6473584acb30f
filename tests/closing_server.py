"""A small HTTP server that closes connections at chosen moments, with or without TLS."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from vllm_harness._exchange.endpoint import Endpoint, served_at

BODY = b'{"data": [{"id": "m"}]}'
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
    len(BODY),
    BODY,
)
LAST_WORDS = {"close": b"", "reset": b"", "status": WHOLE[:10], "headers": WHOLE[:40], "body": WHOLE[:-5]}
"""What the server writes before it closes a connection, by the name of the moment."""


@dataclass
class ClosingServer:
    """Closes a connection before or amid an answer, if the path is `/MOMENT/NUMBERS` with its number.

    Attributes:
        endpoint: the server's address.
        requests: the number of requests of each connection.
    """

    endpoint: Endpoint = field(default_factory=lambda: Endpoint(""))
    requests: list[int] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        number = len(self.requests)
        self.requests.append(0)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                await reader.readexactly(int(head.partition("content-length: ")[2].split("\r")[0] or 0))
                self.requests[number] += 1
                _, moment, closing = head.split()[1].split("/")[:3]
                if str(self.requests[number]) in closing:
                    writer.write(LAST_WORDS[moment])
                    if moment == "reset":
                        sock = writer.get_extra_info("socket")
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                writer.write(WHOLE)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@contextmanager
def closing_server(certificate: Path | None = None) -> Iterator[ClosingServer]:
    """Runs a server, with TLS if it has a certificate (whose key is in the same file)."""
    server, ready, loops = ClosingServer(), threading.Event(), list[asyncio.AbstractEventLoop]()
    ended = asyncio.Event()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if certificate else None
    if context and certificate:
        context.load_cert_chain(certificate)

    async def run() -> None:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
        port = listening.sockets[0].getsockname()[1]
        server.endpoint = served_at("127.0.0.1", port, str(certificate or ""), request_s=60)
        loops.append(asyncio.get_running_loop())
        ready.set()
        await ended.wait()
        listening.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield server
    finally:
        loops[0].call_soon_threadsafe(ended.set)
        thread.join(60)


def certificate_in(folder: Path, name: str = "IP:127.0.0.1", *, issuer: Path | None = None) -> Path:
    """Makes a file with a certificate and its key; it signs itself, or an issuer's file signs it."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl, to make certificates")
    path = folder / f"{'issued' if issuer else 'own'}-{name.partition(':')[2]}.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-noenc",
    ]
    command += ["-days", "2", "-subj", "/CN=test", "-addext", f"subjectAltName={name}"]
    if issuer:
        command += [
            "-CA",
            str(issuer),
            "-CAkey",
            str(issuer),
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ]
    key = path.with_suffix(".key")
    subprocess.run([*command, "-keyout", str(key), "-out", str(path)], check=True, capture_output=True)
    with path.open("a") as file:
        file.write(key.read_text())
    return path
