"""The owner's side of a supervised process: start it, hear from it, let it go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.server.process_tree import kill_marked

SUPERVISOR = Path(__file__).with_name("supervisor.py")


@dataclass(frozen=True)
class Command:
    """A command line for the supervisor; see `supervisor.Config` for the fields."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    log: Path
    tmp: Path
    secrets: list[str] = field(default_factory=list)
    log_limit: int = 256 * 2**20
    grace_s: float = 10.0


class Supervised:
    """One command under its supervisor.

    Args:
        command: what to run.
        server_id: the marker that its processes carry.
    """

    def __init__(self, command: Command, server_id: str) -> None:
        self._command = command
        self._server_id = server_id
        self._messages: dict[str, Any] = {}
        self._heard = threading.Condition()
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", str(SUPERVISOR)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()
        self._send_config()

    @property
    def supervisor_pid(self) -> int:
        """Process id of the supervisor."""
        return self._supervisor.pid

    def pid(self, wait_s: float = 30.0) -> int | None:
        """Process id of the command, waiting for the supervisor's word; None when it could not be run."""
        self._wait_for({"pid", "failed", "eof"}, wait_s)
        return self._messages.get("pid")

    @property
    def failure(self) -> str | None:
        """Why the command could not be run at all."""
        return self._messages.get("failed")

    @property
    def ended(self) -> bool:
        """Whether the command ended by itself, or its supervisor is gone."""
        return bool({"exited", "failed", "eof"} & set(self._messages))

    @property
    def exit_code(self) -> int | None:
        """Exit code of a command that ended by itself, negative for a signal."""
        return self._messages.get("exited")

    def end(self) -> list[int]:
        """Ends the command and all below it; returns process ids that survived."""
        assert self._supervisor.stdin is not None
        self._supervisor.stdin.close()
        try:
            self._supervisor.wait(self._command.grace_s + 20)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()
        self._wait_for({"eof"}, 5)
        result = self._messages.get("ended")
        return kill_marked(self._server_id) if result is None else list(result["survivors"])

    def _send_config(self) -> None:
        config = {
            "owner": os.getpid(),
            "argv": self._command.argv,
            "env": self._command.env,
            "cwd": self._command.cwd,
            "log": str(self._command.log),
            "log_limit": self._command.log_limit,
            "tmp": str(self._command.tmp),
            "secrets": self._command.secrets,
            "grace_s": self._command.grace_s,
        }
        assert self._supervisor.stdin is not None
        self._supervisor.stdin.write(json.dumps(config).encode() + b"\n")
        self._supervisor.stdin.flush()

    def _listen(self) -> None:
        assert self._supervisor.stdout is not None
        for line in self._supervisor.stdout:
            self._note(json.loads(line))
        self._note({"eof": True})

    def _note(self, message: dict[str, Any]) -> None:
        with self._heard:
            self._messages.update(message)
            self._heard.notify_all()

    def _wait_for(self, keys: set[str], wait_s: float) -> None:
        with self._heard:
            self._heard.wait_for(lambda: keys & set(self._messages), timeout=wait_s)
