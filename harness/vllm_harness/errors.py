"""The errors of the harness: one hierarchy, each with what happened and what to try."""

from __future__ import annotations


class HarnessError(Exception):
    """Something the harness can explain.

    Args:
        message: what happened, one or two sentences.
        hint: what to try, imperative; empty where nobody knows.

    Attributes:
        exit_code: exit code of the command line when this error ends it (1: finding or failure, 2: usage).
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  try: {self.hint}" if self.hint else self.message


class UsageError(HarnessError):
    """Bad input from the user: an unknown name, a malformed file, a wrong flag. Exit code 2."""

    exit_code = 2
