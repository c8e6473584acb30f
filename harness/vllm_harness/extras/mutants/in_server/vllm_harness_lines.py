"""Records which lines of given files run in a forked server and in all its processes, from its start on."""

import mmap
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any


def watch(starts: Mapping[str, int], memory: str) -> None:
    """Sets a byte of a shared file for each line that runs, until the process ends.

    Args:
        starts: watched file -> the position of the byte for its line 0; the byte for line 1 follows.
        memory: the path of the shared file; its readers may reset bytes to zero at any time.
    """
    with open(memory, "r+b") as file:  # noqa: PTH123
        ran = mmap.mmap(file.fileno(), 0)
    tracers = {path: _tracer(ran, start) for path, start in starts.items()}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        return tracers.get(frame.f_code.co_filename)

    threading.settrace(trace)
    sys.settrace(trace)


def _tracer(ran: mmap.mmap, start: int) -> Callable[[FrameType, str, Any], Any]:
    def trace(frame: FrameType, event: str, _: Any) -> Any:
        ran[start + frame.f_lineno] = 1
        return trace

    return trace
