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


class StandardStream(io.FileIO):
    """Standard output, or standard error; after a failure, both drop what is written."""

    failure: HarnessError | None = None

    def write(self, data: Any, /) -> int:
        """Writes bytes. Raises HarnessError if standard output fails."""
        try:
            return super().write(data)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if self.fileno() == 2:
                return len(data)
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
    output = StandardStream(1, "wb", closefd=False)
    sys.stdout, sys.stderr = (
        _text(output, sys.stdout),
        _text(StandardStream(2, "wb", closefd=False), sys.stderr),
    )
    try:
        yield
    finally:
        sys.stdout.flush()
        if output.failure:
            raise output.failure


def _text(raw: StandardStream, before: Any) -> io.TextIOWrapper:
    encoding, lines = getattr(before, "encoding", "utf-8"), raw.isatty() or raw.fileno() == 2
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=lines)
