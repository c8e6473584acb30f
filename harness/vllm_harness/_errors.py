"""The root of the harness's errors: each has a message, a hint, and an exit code.

A package defines its errors where it raises them, below `HarnessError` (exit code 1: a failure, or findings) or
`UsageError` (exit code 2: bad input). Those of a server are below `_server.errors.ServerError`. A failed check
of a test is an AssertionError instead, such as `ProtocolViolation`. Code that runs without the harness has its
own errors.
"""

from __future__ import annotations


class HarnessError(Exception):
    """An error that the harness can explain.

    Args:
        message: what happened, in a sentence or two.
        hint: what to try, in the imperative; empty if that is unknown.

    Attributes:
        exit_code: exit code of a command that this error ends.
        of_machine: whether the cause is this machine, so that another machine may not have it.
    """

    exit_code = 1
    of_machine = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  try: {self.hint}" if self.hint else self.message


class UsageError(HarnessError):
    """Bad input from the user: an unknown name, a malformed file, a wrong flag. Exit code 2."""

    exit_code = 2
