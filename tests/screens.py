"""Reads the output of a console as a person would see it."""

from __future__ import annotations

import io

from rich.text import Text


class Screen(io.StringIO):
    """An output file that claims to be a terminal or claims not to be.

    Args:
        terminal: whether the file claims to be a terminal.
    """

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        """Whether the file claims to be a terminal."""
        return self._terminal

    @property
    def lines(self) -> list[str]:
        """The printed lines, without colours and trailing whitespace."""
        return [Text.from_ansi(line).plain.rstrip() for line in self.getvalue().splitlines()]
