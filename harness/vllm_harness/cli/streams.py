"""The standard streams: no encoding, closed pipe or full disk causes a traceback."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vllm_harness._errors import HarnessError
from vllm_harness._files.folders import unusable

CLOSED_PIPE = 141
"""The exit code of a command whose output nobody reads any more, as if SIGPIPE had ended it."""


class StandardStream(io.TextIOWrapper):
    """Standard output, or standard error; after a failure, both drop what is written."""

    failure: HarnessError | None = None

    def write(self, text: str, /) -> int:
        """Writes text. Raises HarnessError if standard output fails."""
        try:
            return super().write(text)
        except OSError as error:
            self._fail(error)
            return len(text)

    def flush(self) -> None:
        """Writes what is buffered. Raises HarnessError if standard output fails."""
        try:
            super().flush()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
        if self.fileno() == 2:
            return
        self.failure = unusable(error, "standard output", "redirect it to another file")
        self.failure.exit_code = CLOSED_PIPE if error.errno == errno.EPIPE else 3
        raise self.failure from error


@contextmanager
def safe_streams() -> Iterator[None]:
    """Lets both streams escape what their encoding lacks. Raises HarnessError if standard output fails."""
    if sys.stdout is not sys.__stdout__:  # somebody else reads it
        yield
        return
    while os.open(os.devnull, os.O_RDWR) < 3:  # a closed stream would give its number to the next file
        pass
    sys.stdout, sys.stderr = output, _ = _stream(1, sys.stdout), _stream(2, sys.stderr)
    try:
        yield
    finally:
        sys.stdout.flush()
        if output.failure:
            raise output.failure


def _stream(number: int, before: Any) -> StandardStream:
    raw = io.FileIO(number, "wb", closefd=False)
    encoding, lines = getattr(before, "encoding", "utf-8"), raw.isatty() or number == 2
    return StandardStream(io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=lines)
