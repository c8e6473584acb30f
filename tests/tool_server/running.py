"""Runs a tool server as a separate process, for tests."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from requests import RequestException

from vllm_harness._exchange.endpoint import ask
from vllm_harness._server.leases.ports import is_free, lease_port

READY_S = 120.0
ROOT = Path(__file__).parents[2]


@dataclass
class ToolServer:
    """A context manager that starts and stops a tool server; inside, it can be stopped and started again.

    Attributes:
        name: `python`, `container` or `browser`.
        folder: the folder of its journal and log.
        key: the bearer token that sessions need; None for no key.
    """

    name: str
    folder: Path
    key: str | None = None
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def __enter__(self) -> Self:
        self._lease = lease_port()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._lease.release()

    @property
    def address(self) -> str:
        """HOST:PORT, for `--tool-server`."""
        return f"127.0.0.1:{self._lease.port}"

    @property
    def _journal(self) -> Path:
        return self.folder / f"{self.name}.jsonl"

    def journal(self, what: str) -> list[dict[str, Any]]:
        """The journal's entries of a kind: `session`, or a tool's name."""
        lines = self._journal.read_text().splitlines() if self._journal.exists() else []
        return [line for line in map(json.loads, lines) if line["what"] == what]

    def forget(self) -> None:
        """Empties the journal."""
        self._journal.unlink(missing_ok=True)

    def start(self) -> None:
        """Starts the server on its port and waits until it answers."""
        command = [sys.executable, "-m", "tests.tool_server", self.name, str(self._lease.port), "--owned"]
        command += ["--journal", str(self._journal), *(["--key", self.key] if self.key else [])]
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log)
        deadline = time.monotonic() + READY_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                log_tail = (self.folder / f"{self.name}.log").read_text()[-2000:]
                raise RuntimeError(f"the tool server {self.name} does not answer: {log_tail}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stops the server and its open sessions."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _answers(self) -> bool:
        if is_free(self._lease.port):
            return False
        try:
            return ask("GET", f"http://{self.address}/none", timeout=2).status_code == 404
        except RequestException:
            return False
