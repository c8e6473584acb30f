"""Leases of ports: each is a claim, so that parallel runs never choose the same port."""

from __future__ import annotations

import pwd
import random
import socket
import time
from contextlib import suppress
from pathlib import Path

import psutil

from vllm_harness._errors import HarnessError
from vllm_harness._server.leases.claims import Claim, all_claims
from vllm_harness._server.records import running

# below Linux's default range of ephemeral ports, so that no outgoing connection takes one by chance
PORTS = range(21000, 29000)
CANDIDATES = 200
LISTENING = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
TCP_LISTEN = "0A"


class NoFreePort(HarnessError):
    """All ports that were tried are in use."""

    of_machine = True


def lease_port(port: int | None = None, *, seed: int | None = None) -> Claim:
    """Leases a port: nobody else can lease it until the lease is released.

    Args:
        port: the port to lease; by default any free one.
        seed: makes the choice of a free port reproducible.

    Raises:
        NoFreePort: the given port is taken, or none of 200 candidates is free.
    """
    candidates = random.Random(seed).sample(PORTS, CANDIDATES) if port is None else [port]
    with all_claims() as claims:
        leased = {claim.port for claim in claims}
        for candidate in candidates:
            if candidate not in leased and is_free(candidate):
                claims.append(claim := Claim("port", port=candidate))
                return claim
    raise _taken(port)


def _taken(port: int | None) -> NoFreePort:
    if port is None:
        return NoFreePort(
            f"none of {CANDIDATES} ports between {PORTS.start} and {PORTS.stop} is free",
            hint="end processes that listen there",
        )
    advice = "leave the port out: the harness then leases a free port"
    for record in running():
        if record.port == port:
            command = f"vllm-harness serve stop {record.name}" if record.kept else f"kill {record.owner}"
            return NoFreePort(
                f"port {port} is held by your {record.lane} server {record.name!r} (log: {record.log})",
                hint=f"end it with `{command}`, or {advice}",
            )
    return NoFreePort(f"port {port} is taken by {describe_holder(port)}", hint=advice)


def wait_until_free(port: int, limit_s: float) -> bool:
    """Waits until a server could bind a port again; returns False if that exceeds the limit."""
    deadline = time.monotonic() + limit_s
    while not is_free(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could bind a port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            return True
        except OSError:
            return False


def listeners(port: int) -> set[int | None]:
    """The ids of the processes that listen on a TCP port; None for one that this user may not inspect."""
    return {
        connection.pid
        for connection in psutil.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
    }


def describe_holder(port: int) -> str:
    """Names the processes that listen on a port, such as `pid 12 (python -m http.server)`, or their user."""
    names: list[str] = []
    for pid in sorted(listeners(port), key=lambda pid: pid or 0):
        try:
            command = " ".join(psutil.Process(pid).cmdline()) if pid else ""
            names.append(f"pid {pid} ({command.strip()[:80]})" if pid else f"user {_user(port)}")
        except psutil.Error:
            names.append(f"pid {pid}")
    return ", ".join(names) or "another run of the harness"


def _user(port: int) -> str:
    """The user who listens on a port, from the tables in /proc, which list the sockets of every user."""
    for table in LISTENING:
        for fields in (line.split() for line in table.read_text().splitlines()[1:]):
            if fields[1].endswith(f":{port:04X}") and fields[3] == TCP_LISTEN:
                with suppress(KeyError):  # the user id belongs to another namespace
                    return pwd.getpwuid(int(fields[7])).pw_name
                return fields[7]
    return "unknown"
