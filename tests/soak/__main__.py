"""`scripts/soak`: repeats random trials up to a number or a time, and sums up all trials of a log."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from types import FrameType
from typing import Annotated, Literal

import typer

from tests.soak.commands import CommandFails
from tests.soak.kills import Kills
from tests.soak.log import HEADINGS, append, read, rows
from tests.soak.place import Place, place
from tests.soak.trials import VICTIMS, draw
from vllm_harness._files.paths import state_dir
from vllm_harness._machine.processes import killed_with_parent
from vllm_harness._terminal.tables import plain_console, show_table

console = plain_console()


def main(
    kind: Annotated[Literal["kills"], typer.Argument(help="What is tried.")],
    trials: Annotated[
        int | None, typer.Option(help="How many trials; by default one of each kind.", min=1)
    ] = None,
    hours: Annotated[float | None, typer.Option(help="Begin no trial after this time.", min=0)] = None,
    seed: Annotated[int | None, typer.Option(help="Draws the same trials again.")] = None,
    victim: Annotated[
        list[str] | None, typer.Option(help=f"Only this: {', '.join(VICTIMS)}; repeatable.")
    ] = None,
    busy: Annotated[int, typer.Option(help="Processes that keep the cores busy.", min=0)] = 0,
    log: Annotated[Path | None, typer.Option(help="The log; by default in the state folder.")] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Only sum up the log.")] = False,
) -> None:
    """Kills processes of commands at random moments: everything must end, and the next run must pass.

    Exit code 1 if something was left, a next run failed, or a command did not end.
    """
    log = log or state_dir() / "soak" / f"{kind}.jsonl"
    kinds = victim or list(VICTIMS)
    if unknown := set(kinds) - VICTIMS.keys():
        raise typer.BadParameter(f"there is no {min(unknown)}; there are {', '.join(VICTIMS)}")
    seed = secrets.randbelow(2**32) if seed is None else seed
    most = trials or (None if hours is not None else len(kinds))
    faults = 0
    try:
        if not summary:
            faults = _soak(seed, kinds, most, hours, busy, log)
    finally:
        _sum_up(log)
    raise typer.Exit(1 if faults else 0)


def _soak(seed: int, kinds: list[str], most: int | None, hours: float | None, busy: int, log: Path) -> int:
    """Runs the trials; returns how many had a fault."""
    end = time.monotonic() + 3600 * hours if hours is not None else float("inf")
    faults = 0
    with place() as where, _busy(busy, where):
        kills = Kills(where, busy)
        for number in islice(count(), most):
            if time.monotonic() > end:
                break
            result = kills.try_once(draw(seed, number, kinds))
            append(result, log)
            faults += result.is_fault
            of = f" of {most}" if most else ""
            console.print(f"trial {number + 1}{of}, seed {seed}: {result.sentence()}")
    return faults


def _sum_up(log: Path) -> None:
    if results := read(log):
        console.print()
        show_table(console, HEADINGS, rows(results), set(HEADINGS[1:-1]))
        console.print(f"upper bound: of the probability of a fault, with a confidence of 95 %; log: {log}")
    else:
        console.print(f"no trial is in {log}")


@contextmanager
def _busy(processes: int, where: Place) -> Iterator[None]:
    """Keeps cores busy."""
    command = [*killed_with_parent(), sys.executable, "-c", "while 1: pass"]
    where.apart += [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for process in where.apart:
            process.kill()
            process.wait()


received: list[int] = []
"""The signals that end the soak."""


def _interrupt(number: int, _: FrameType | None) -> None:
    received.append(number)
    if len(received) == 1:  # a second signal does not end the clean-up
        raise KeyboardInterrupt


if __name__ == "__main__":
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _interrupt)
    try:
        typer.run(main)
    except CommandFails as error:
        console.print(f"error: {error}")
        sys.exit(3)
    except SystemExit as ended:
        sys.exit(128 + received[0] if received else ended.code)
