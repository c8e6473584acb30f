"""Shows the progress of a server's start: a live line on a terminal, else a line for each phase."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.status import Status


class StartProgress:
    """Receives the progress of a server's start, and shows nothing."""

    def phase(self, name: str, phase: str, elapsed_s: float) -> None:
        """Called several times a second while the server `name` is in `phase`."""

    def done(self, name: str, elapsed_s: float) -> None:
        """Called when the server is ready."""

    def stop(self) -> None:
        """Called when the start has ended, whether the server is ready or not."""


class ConsoleProgress(StartProgress):
    """Shows on standard error a spinner with phase and elapsed time, or a line for each phase."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(file=sys.stderr, highlight=False)
        self._status: Status | None = None
        self._last = ""

    def phase(self, name: str, phase: str, elapsed_s: float) -> None:
        if self._console.is_terminal:
            text = f"starting {name}: {phase} ({elapsed_s:.0f} s)"
            if self._status is None:
                self._status = self._console.status(text)
                self._status.start()
            self._status.update(text)
        elif phase != self._last:
            self._console.print(f"starting {name}: {phase} ({elapsed_s:.1f} s)")
        self._last = phase

    def done(self, name: str, elapsed_s: float) -> None:
        self.stop()
        self._console.print(f"{name} is ready after {elapsed_s:.1f} s")

    def stop(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
        self._last = ""
