"""Shows a command's progress on standard error: a bar on a terminal, elsewhere a line every ten seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from vllm_harness._terminal.pace import Pace, minutes
from vllm_harness._terminal.tables import on_terminal, plain_console

EVERY_S = 10.0
_ESTIMATE_WINDOW_S = 600.0
"""The period over which the bar averages its speed; it is long, since an item can take half a minute."""


@contextmanager
def counted(name: str, total: int, every_s: float = EVERY_S) -> Iterator[Callable[[], None]]:
    """Shows how many items are done; yields a function to call, from any thread, when another item is done.

    Args:
        name: the name of the items, in the plural.
        total: the number of items.
        every_s: the seconds between two lines if the output is not a terminal.
    """
    console = plain_console(stderr=True)
    if not total:
        yield lambda: None
    elif on_terminal(console):
        with _bar() as progress:
            task = progress.add_task(name, total=total)
            yield lambda: progress.advance(task)
    else:
        yield from _lines(console, name, Pace(total), every_s)


def _bar() -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True, highlight=False)
    return Progress(*columns, console=console, speed_estimate_period=_ESTIMATE_WINDOW_S)


def _lines(console: Console, name: str, pace: Pace, every_s: float) -> Iterator[Callable[[], None]]:
    ended, lock = threading.Event(), threading.Lock()

    def advance() -> None:
        with lock:
            pace.advance()

    def report() -> None:
        while not ended.wait(every_s):
            console.print(f"{name}: {pace.done} of {pace.total}, {pace}")

    console.print(f"{name}: {pace.total} to do")
    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield advance
    finally:
        ended.set()
        reporter.join()
        console.print(f"{name}: {pace.done} of {pace.total} in {minutes(pace.elapsed_s)}")
