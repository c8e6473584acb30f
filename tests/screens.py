"""What a console has printed, as a person reads it."""

from __future__ import annotations

import io

from rich.text import Text


class Screen(io.StringIO):
    """A file that is a terminal or is none.

    Args:
        terminal: whether it is one.
    """

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._terminal

    @property
    def lines(self) -> list[str]:
        """Its lines, without colours and without the white space at their ends."""
        return [Text.from_ansi(line).plain.rstrip() for line in self.getvalue().splitlines()]
