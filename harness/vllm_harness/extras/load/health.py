"""Measures the memory and handles of processes during a load, and the requests that still run after it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median

import psutil
import requests

from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._protocol.core.events import Json

SAMPLE_EVERY_S = 2.0
END_WITHIN_S = 20.0
_ENGINE_TITLES = ("::EngineCore", "::Worker")  # vllm/utils/system_utils.py: set_process_title
_GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting")


@dataclass(frozen=True)
class ProcessSample:
    """The memory and handles of a group of processes at one time.

    Attributes:
        at_s: the time in seconds after the load's start.
        memory_mib: the resident memory of all processes, in MiB.
        handles: the number of open file descriptors of all processes.
    """

    at_s: float
    memory_mib: float
    handles: int


def sample(at_s: float, processes: Iterable[psutil.Process]) -> ProcessSample:
    """Measures the memory and handles of processes; a process that has ended counts as zero."""
    memory, handles = 0, 0
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            memory += process.memory_info().rss
            handles += process.num_fds()
    return ProcessSample(round(at_s, 3), round(memory / 2**20, 2), handles)


def own_process() -> list[psutil.Process]:
    """This process as a list, for `watch`."""
    return [psutil.Process()]


def server_processes(pid: int) -> list[psutil.Process]:
    """A server's process and its descendants, without the engine's processes; empty if it has ended."""
    return [process for process in _with_descendants(pid) if not _is_of_engine(process)]


def engine_processes(pid: int) -> list[psutil.Process]:
    """The descendants of a server's process that run its model: the engine's core and its workers."""
    return [process for process in _with_descendants(pid) if _is_of_engine(process)]


def _with_descendants(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def _is_of_engine(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(title in first for first in process.cmdline()[:1] for title in _ENGINE_TITLES)
    return False


@dataclass(frozen=True)
class Drift:
    """How memory and handles changed: the medians over the second and the last quarter of the samples.

    The first quarter does not count, because caches fill during it.
    """

    memory_mib: tuple[float, float]
    handles: tuple[float, float]

    def as_json(self) -> Json:
        """The medians as a JSON object, for the report."""
        return asdict(self)


def drift(samples: Sequence[ProcessSample]) -> Drift | None:
    """Calculates the change over the samples; returns None if there are too few samples."""
    quarter = len(samples) // 4
    if not quarter:
        return None
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]
    return Drift(
        (median(sample.memory_mib for sample in early), median(sample.memory_mib for sample in late)),
        (median(sample.handles for sample in early), median(sample.handles for sample in late)),
    )


async def watch(
    elapsed: Callable[[], float], processes: Callable[[], list[psutil.Process]], samples: list[ProcessSample]
) -> None:
    """Appends a sample of the processes every two seconds, until it is cancelled."""
    while True:
        samples.append(await asyncio.to_thread(lambda: sample(elapsed(), processes())))
        await asyncio.sleep(SAMPLE_EVERY_S)


async def left_running(endpoint: Endpoint, within_s: float = END_WITHIN_S) -> int | None:
    """Waits until a server has no running or waiting requests, or until the time is over.

    Returns:
        The number of requests that are left; None if the server does not report them.
    """
    end = asyncio.get_running_loop().time() + within_s
    while True:
        running = await asyncio.to_thread(_running, endpoint)
        if not running or asyncio.get_running_loop().time() > end:
            return running
        await asyncio.sleep(0.2)


def _running(endpoint: Endpoint) -> int | None:
    try:
        metrics = endpoint.metrics()
    except (requests.RequestException, ValueError):
        return None
    gauges = [metrics[name] for name in _GAUGES if name in metrics]
    return round(sum(gauges)) if gauges else None
