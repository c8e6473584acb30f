"""Writes to a server's log which process a signal killed, while vLLM only says that one is gone."""

from __future__ import annotations

import faulthandler
import os
from multiprocessing import popen_fork, process
from typing import Any


def report_deaths() -> None:
    """Reports the children that others kill, and where a crash happened, here and in forked children."""
    popen: Any = popen_fork.Popen
    reap, send = popen.poll, popen._send_signal
    asked_to_end: set[int] = set()

    def poll(self: Any, flag: int = os.WNOHANG) -> int | None:
        known = self.returncode is not None
        code: int | None = reap(self, flag)
        if code is not None and code < 0 and not known and self.pid not in asked_to_end:
            children: Any = list(vars(process)["_children"])
            name = next((child.name for child in children if child._popen is self), "a process")
            os.write(2, f"vllm-harness: {name} was killed by signal {-code}\n".encode())
        return code

    def send_signal(self: Any, number: int) -> None:
        asked_to_end.add(self.pid)
        send(self, number)

    popen.poll, popen._send_signal = poll, send_signal
    faulthandler.enable(2)
