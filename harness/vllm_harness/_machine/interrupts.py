"""How a command ends by HUP, INT or TERM, and what it has kept until then.

The first signal raises KeyboardInterrupt in the main thread; a further Ctrl-C ends the process at once. Other
further signals are ignored, since a closed terminal and a service manager send several together. Only the
console script handles signals like this: whoever calls a command from another program does it himself.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import which
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 128 + signal.SIGINT
_received: list[int] = []
_stops: list[Callable[[str], object]] = []
_kept: dict[Path, tuple[str, ...]] = {}
_SHOW_CURSOR = "\x1b[?25h"


def handle_signals(*, ending: bool = False) -> None:
    """Makes signals end the process as described above, or at once, except those that `nohup` ignores."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL if ending else _interrupt)


@contextmanager
def stopping(stop: Callable[[str], object]) -> Iterator[None]:
    """Calls `stop` with the name of the first signal, which then raises no KeyboardInterrupt."""
    _stops.append(stop)
    try:
        yield
    finally:
        _stops.remove(stop)


def exit_code(otherwise: int) -> int:
    """128 and the number of the first signal; `otherwise` if there was none."""
    return 128 + _received[0] if _received else otherwise


def keep(path: Path, *resume: str) -> None:
    """Notes where the results so far are, and the arguments of the command that resumes the work, if any."""
    _kept[path] = resume or _kept.get(path, ())


def end(code: int) -> NoReturn:
    """Says what is kept, and ends the process without waiting for its threads."""
    *_, (path, resume) = [(None, ()), *(each for each in _kept.items() if each[0].exists())]
    kept = f"kept: {path}" if path else "nothing to keep yet"
    purpose = "to resume" if resume else "to start again"
    program, name = sys.argv[0], Path(sys.argv[0]).name
    again = shlex.join([name if which(name) == program else program, *(resume or sys.argv[1:])])
    with suppress(OSError, ValueError, RuntimeError):  # it may be closed, or in use when the signal comes
        sys.stdout.flush()
    text = f"\ninterrupted by {signal.Signals(code - 128).name}; {kept}; {purpose}:\n{again}\n"
    with suppress(OSError):
        os.write(2, (_SHOW_CURSOR * sys.stderr.isatty() + text).encode(errors="backslashreplace"))
    os._exit(code)


def _interrupt(number: int, _: FrameType | None) -> None:
    _received.append(number)
    if len(_received) > 1:
        if number == signal.SIGINT:
            end(exit_code(number))
    elif _stops:
        _stops[-1](signal.Signals(number).name)
    else:
        raise KeyboardInterrupt
