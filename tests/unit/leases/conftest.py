"""Fixtures for leases: a state folder per test, a table of GPUs, and other processes with leases."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_harness._machine.gpus import TABLE_VARIABLE
from vllm_harness._server.leases import waiting
from vllm_harness._terminal import notices

GIB = 2**30

OWNER = """
import sys
from vllm_harness._terminal import notices
from vllm_harness._server.leases import waiting
from vllm_harness._server.leases.gpus import lease_gpus
from vllm_harness._server.leases.memory import Room, lease_memory
waiting.POLL_S = 0.02
room = lambda: Room(16, 16)
held = []
def take(kind, amount):
    match kind:
        case "gpus":
            held.append(lease_gpus(int(amount), 16))
            return held[-1].env["CUDA_VISIBLE_DEVICES"]
        case "share":
            held.append(lease_gpus(int(amount), 4, shared=True))
            return held[-1].env["CUDA_VISIBLE_DEVICES"]
        case "memory":
            held.append(lease_memory(float(amount), room=room))
        case "reserve":
            held.append(lease_memory(float(amount), room=room, kind="reservation"))
    return kind
with notices.shown_by(lambda text: print(text, flush=True)):
    for line in sys.stdin:
        match line.split():
            case ["release"]:
                held.pop().release()
                print("released", flush=True)
            case [kind, amount]:
                try:
                    print("has", take(kind, amount), flush=True)
                except Exception as error:
                    print(type(error).__name__, str(error).splitlines()[0], flush=True)
"""


class Owner:
    """Another process that leases something, and releases it on request."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    @property
    def pid(self) -> int:
        """The process id of the owner."""
        return self.process.pid

    def request(self, kind: str, amount: float) -> None:
        """Makes it lease `memory` (GiB), `reserve` memory, or lease `gpus` (a number) or a `share`."""
        self._do(f"{kind} {amount:g}")

    def next_line(self) -> str:
        """The next line of the owner's output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def has(self) -> str:
        """Waits until the owner has a lease, and returns what it leased."""
        while not (line := self.next_line()).startswith("has "):
            assert line.startswith("waiting"), line or "the owner ended"
        return line.removeprefix("has ")

    def release(self) -> None:
        """Makes the owner release its latest lease."""
        self._do("release")
        assert self.next_line() == "released"

    def _do(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Kills the owner, so that it ends as in a crash."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture(autouse=True)
def _no_notices() -> Iterator[None]:
    """Hides the messages about waits in these tests."""
    with notices.shown_by(lambda _: None):
        yield


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_HARNESS_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("VLLM_HARNESS_MEMORY_GIB", raising=False)
    monkeypatch.delenv("VLLM_HARNESS_LEASE_WAIT_S", raising=False)
    monkeypatch.setattr(waiting, "POLL_S", 0.02)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Writes the table of GPUs from a dict for each: `gib` and `used` (both in GiB), and `processes`."""
    path = tmp_path / "gpus.json"
    monkeypatch.setenv(TABLE_VARIABLE, str(path))

    def write(*gpus: dict[str, Any]) -> None:
        rows = [
            {
                "index": index,
                "uuid": f"GPU-{index}aaa",
                "name": "Test GPU",
                "total_bytes": int(gpu.get("gib", 24) * GIB),
                "used_bytes": int(gpu.get("used", 0) * GIB),
                "processes": gpu.get("processes", []),
            }
            for index, gpu in enumerate(gpus)
        ]
        half = path.with_suffix(".half")
        half.write_text(json.dumps(rows))
        os.replace(half, path)  # noqa: PTH105

    write({}, {})
    return write


@pytest.fixture
def owner() -> Iterator[Callable[[str, float], Owner]]:
    """A function that starts owners of leases; they are ended after the test."""
    owners: list[Owner] = []

    def start(kind: str, amount: float) -> Owner:
        owners.append(Owner())
        owners[-1].request(kind, amount)
        return owners[-1]

    yield start
    for process in owners:
        process.kill()
