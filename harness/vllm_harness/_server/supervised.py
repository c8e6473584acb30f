"""The owner's side of a supervised server: starts it, receives its supervisor's messages, and ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from vllm_harness._server.process_tree import clear
from vllm_harness._server.supervisor import KEEP, READY, started

SUPERVISOR = Path(__file__).with_name("supervisor.py")


@dataclass(frozen=True)
class Handle:
    """The two pipes of a supervisor: closing `control` ends the server; `status` delivers messages."""

    control: IO[bytes]
    status: IO[bytes]
    reap: Callable[[], object] = lambda: None


Spawn = Callable[[dict[str, Any]], Handle]


def spawn_cold(config: dict[str, Any]) -> Handle:
    """The cold start: starts a supervisor in a new process, which executes the server's command."""
    process = subprocess.Popen(
        [sys.executable, "-I", str(SUPERVISOR)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):  # the supervisor was killed, as the status pipe will show
        process.stdin.write(json.dumps(config).encode() + b"\n")
        process.stdin.flush()
    return Handle(process.stdin, process.stdout, process.wait)


class Supervised:
    """A server under a supervisor, which `spawn` starts from a config (see `supervisor.Config`)."""

    def __init__(self, config: dict[str, Any], spawn: Spawn = spawn_cold) -> None:
        self._grace_s: float = config["grace_s"]
        self._server_id: str = config["server_id"]
        self._folder: str = config["tmp"]
        self._earlier_blocks: list[str] = config["earlier_blocks"]
        self._record = Path(config["record"])
        self._kept = False
        self._messages: dict[str, Any] = {}
        self._received = threading.Condition()
        self._handle = spawn(config)
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def supervisor_pid(self) -> int | None:
        """The process id of the supervisor; None if it sent no message."""
        self._wait_for({"supervisor", "eof"}, 30)
        return self._messages.get("supervisor")

    def pid(self) -> int | None:
        """The process id of the server; None if it could not be executed."""
        self._wait_for({"pid", "failed", "eof"}, 30)
        return self._messages.get("pid")

    @property
    def failure(self) -> str | None:
        """The reason why the server could not be executed; None if it could."""
        return self._messages.get("failed")

    @property
    def ended(self) -> bool:
        """Whether the server has ended by itself, or its supervisor is gone; so are its processes then."""
        ends = {"exited", "failed", "eof"}
        if not ends & set(self._messages) and started(self._messages.get("pid", os.getpid())) is None:
            self._wait_for(ends, 30)
        return bool(ends & set(self._messages))

    @property
    def exit_code(self) -> int | None:
        """The exit code if the server ended by itself (negative for a signal); else None."""
        return self._messages.get("exited")

    def end(self) -> list[int]:
        """Ends the server and its descendants; returns the ids of processes that survived."""
        with suppress(OSError):
            self._handle.control.close()
        if self._kept and self.supervisor_pid:
            os.kill(self.supervisor_pid, signal.SIGTERM)
        if not self._wait_for({"eof"}, self._grace_s + 20) and self.supervisor_pid:
            os.kill(self.supervisor_pid, signal.SIGKILL)
            self._wait_for({"eof"}, 20)
        self._handle.reap()
        self._handle.status.close()
        return list(self._messages.get("ended", {}).get("survivors", []))

    def ready(self) -> None:
        """Gives the server time to finish its requests when it is ended, since it serves now."""
        self._say(READY)

    def keep(self) -> None:
        """Lets the server outlive its owner."""
        self._kept = True
        self._say(KEEP)

    def _say(self, word: bytes) -> None:
        with suppress(BrokenPipeError):  # the supervisor was killed, as the status pipe will show
            self._handle.control.write(word)
            self._handle.control.flush()

    def _listen(self) -> None:
        with suppress(ValueError, OSError):
            for line in self._handle.status:
                self._note(json.loads(line))
        if not {"ended", "failed"} & set(self._messages):
            with suppress(psutil.Error, OSError):
                self._clear()
        self._note({"eof": True})

    def _clear(self) -> None:
        """Clears the server in place of its supervisor, which was killed."""
        self._note({"ended": {"survivors": clear(self._server_id, self._folder, self._earlier_blocks)}})
        self._record.unlink(missing_ok=True)

    def _note(self, message: dict[str, Any]) -> None:
        with self._received:
            self._messages.update(message)
            self._received.notify_all()

    def _wait_for(self, keys: set[str], wait_s: float) -> bool:
        with self._received:
            return self._received.wait_for(lambda: bool(keys & set(self._messages)), timeout=wait_s)
