"""How far a command is: a bar on a terminal, elsewhere a line every ten seconds; on standard error."""

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

from vllm_harness.terminal.pace import Pace, minutes
from vllm_harness.terminal.tables import on_terminal, plain_console

EVERY_S = 10.0
_REMEMBERED_S = 600.0
"""How far back the bar's estimate looks: a server's cell takes half a minute."""


@contextmanager
def counted(what: str, total: int, every_s: float = EVERY_S) -> Iterator[Callable[[], None]]:
    """Shows how many of a number of things are done; yields what is called when one more is, from any thread.

    Args:
        what: their name in the plural.
        total: how many there are.
        every_s: seconds between two lines where there is no terminal.
    """
    console = plain_console(stderr=True)
    if not total:
        yield lambda: None
    elif on_terminal(console):
        with _bar() as progress:
            task = progress.add_task(what, total=total)
            yield lambda: progress.advance(task)
    else:
        yield from _lines(console, what, Pace(total), every_s)


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
    return Progress(*columns, console=console, speed_estimate_period=_REMEMBERED_S)


def _lines(console: Console, what: str, pace: Pace, every_s: float) -> Iterator[Callable[[], None]]:
    ended, lock = threading.Event(), threading.Lock()

    def advance() -> None:
        with lock:
            pace.advance()

    def tell() -> None:
        while not ended.wait(every_s):
            console.print(f"{what}: {pace.done} of {pace.total}, {pace}")

    console.print(f"{what}: {pace.total} to do")
    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield advance
    finally:
        ended.set()
        teller.join()
        console.print(f"{what}: {pace.done} of {pace.total} in {minutes(pace.elapsed_s)}")
