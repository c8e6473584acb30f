"""Reads what a console has printed, as a person sees it."""

from __future__ import annotations

import io

from rich.text import Text


class Screen(io.StringIO):
    """A file that claims to be a terminal, or not to be one.

    Args:
        terminal: whether it claims to be a terminal.
    """

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        """Whether it claims to be a terminal."""
        return self._terminal

    @property
    def lines(self) -> list[str]:
        """The lines without colours and trailing whitespace."""
        return [Text.from_ansi(line).plain.rstrip() for line in self.getvalue().splitlines()]
