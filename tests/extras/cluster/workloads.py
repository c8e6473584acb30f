"""The work that shards do in the tests: real processes and files on the nodes, but no vLLM."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.extras.cluster.leftovers import wait_for
from vllm_harness._machine.shard import Needs, Preparation, Shard, Work

Found = tuple[str, int]
"""The name of a cell, and the id of the process that ran it."""


SMALL = Needs(1, 1)


def shard(
    name: str,
    work: Work[Found],
    cells: int = 3,
    needs: Needs = SMALL,
    preparation: Preparation | None = None,
) -> Shard[Found]:
    """A shard with numbered cells."""
    return Shard(name, tuple(f"{name}.{number}" for number in range(cells)), work, needs, preparation)


def quick(cells: Sequence[str]) -> Iterator[tuple[str, Found]]:
    """Finishes each cell at once."""
    for cell in cells:
        yield cell, (cell, os.getpid())


def together(folder: Path, number: int, cells: Sequence[str]) -> Iterator[tuple[str, Found]]:
    """Finishes each cell when `number` cells have begun, and records when it began and ended."""
    for cell in cells:
        began = time.time()
        (folder / f"{cell}.begun").touch()
        wait_for(lambda: len(list(folder.glob("*.begun"))) >= number)
        with (folder / "intervals").open("a") as file:
            file.write(f"{cell} {began} {time.time()}\n")
        yield cell, (cell, os.getpid())


def after_the_last_result(folder: Path, cells: Sequence[str]) -> Iterator[tuple[str, Found]]:
    """Finishes each cell when a file in the folder shows that the result of the cell before has arrived."""
    for before, cell in zip((None, *cells), cells, strict=False):
        if before:
            wait_for((folder / before).exists)
        yield cell, (cell, os.getpid())


def slow(folder: Path, seconds: float, cells: Sequence[str]) -> Iterator[tuple[str, Found]]:
    """Sleeps in each cell, and records when it started and ended, even if it is interrupted."""
    for cell in cells:
        began = time.time()
        try:
            time.sleep(seconds)
        finally:
            with (folder / "intervals").open("a") as file:
                file.write(f"{cell} {began} {time.time()}\n")
        yield cell, (cell, os.getpid())


def with_placement_group(folder: Path, gpus: int, cells: Sequence[str]) -> Iterator[tuple[str, Found]]:
    """Makes a placement group of `gpus` GPUs in each cell, and records when it asked for them."""
    from ray.util import placement_group, remove_placement_group

    for cell in cells:
        began = time.time()
        group = placement_group([{"GPU": 1}] * gpus, strategy="PACK")
        try:
            assert group.wait(timeout_seconds=600)
            with (folder / "asked").open("a") as file:
                file.write(f"{began}\n")
            time.sleep(1)
        finally:
            remove_placement_group(group)
        yield cell, (cell, os.getpid())


def with_a_child(folder: Path, cells: Sequence[str]) -> Iterator[tuple[str, Found]]:
    """Finishes the first cell at once; the second waits for a child process, and kills it if interrupted."""
    yield cells[0], (cells[0], os.getpid())
    process = subprocess.Popen(["sleep", "600"])
    (folder / f"child-{process.pid}").touch()
    try:
        process.wait()
    finally:
        process.kill()
        process.wait()
        (folder / f"ended-{process.pid}").touch()


def once(folder: Path, fault: Callable[[], None], cells: Sequence[str]) -> Iterator[tuple[str, Found]]:
    """Calls `fault` in the second cell, but only the first time that the cell starts on any node."""
    for cell in cells:
        if cell.endswith(".1") and _first(folder / f"{cell}.begun"):
            fault()
        yield cell, (cell, os.getpid())


def _first(mark: Path) -> bool:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def killed() -> None:
    """Kills the worker process with SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def hangs() -> None:
    """Hangs for an hour."""
    time.sleep(3600)


def disk_full() -> None:
    """Raises the error that a full disk causes."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def always_killed(cells: Sequence[str]) -> Iterator[tuple[str, Found]]:
    """Never finishes a cell."""
    killed()
    yield from quick(cells)


def prepared(folder: Path, fails_first: bool, say: Callable[[str], None]) -> None:
    """Records each time that the preparation runs; with `fails_first`, the first time fails: disk full."""
    say("making it")
    first = _first(folder / "first")
    with (folder / "made").open("a") as file:
        file.write(f"{os.getpid()}\n")
    if first and fails_first:
        disk_full()


def preparation(folder: Path, *, fails_first: bool = False) -> Preparation:
    """A preparation that calls `prepared`."""
    return Preparation("something", partial(prepared, folder, fails_first))
