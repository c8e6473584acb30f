"""The memory that a server takes on CPU: measured at each server's end and kept, and a guess until then."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from filelock import FileLock

from vllm_harness.files.paths import state_dir
from vllm_harness.files.variables import number
from vllm_harness.server.fork_server import FIRST, templates
from vllm_harness.server.launch import Launch
from vllm_harness.server.process_tree import tree_pids
from vllm_harness.server.records import running

STAND_IN_GIB = {"forked": 0.7, "cold": 2.2}
"""Guess for a stand-in that was never measured; gpt-oss and Qwen 3 take 0.3 and 1.9 GiB on vLLM 0.32.0."""
FORK_SERVER_GIB = 1.1
"""Guess for a fork server with a model's tokenizer, before it can be measured."""
MARGIN, SPARE_GIB = 1.25, 0.1
"""What a server may take beyond its measured memory."""
MEASURED_FOR_S = 20.0
_templates: dict[psutil.Process, tuple[float, int]] = {}


@dataclass(frozen=True)
class Start:
    """A launch on CPU and its kind of start.

    Attributes:
        forked: from the fork server, which shares most of its memory with it.
    """

    launch: Launch
    forked: bool

    @property
    def cache_gib(self) -> float:
        """Size of its KV cache: taken as the cache fills, but vLLM requires it to be free at the start."""
        return number(self.launch.environ(), "VLLM_CPU_KVCACHE_SPACE", 1.0)

    @property
    def key(self) -> str:
        """The key of a measurement: servers of the same key take the same memory.

        One that runs a file first, as for a mutant, serves few tests, and its KV cache fills less.
        """
        launch, start = self.launch, "forked" if self.forked else "cold"
        version = launch.environment.vllm_version
        first = " first" if os.environ.get(FIRST) else ""
        kind = f"{start} {version} {launch.frontend} {self.cache_gib:g}{first}"
        return f"{launch.entry.name} {launch.lane} {kind}"

    def need_gib(self) -> float:
        """The memory it needs: as measured, with a margin, or a guess."""
        if measured := _measured().get(self.key):
            return measured * MARGIN + SPARE_GIB
        if self.launch.lane == "live":
            shared = FORK_SERVER_GIB if self.forked else 0.0
            guess = max(1.0, self.launch.entry.hardware.cpu_memory_gib - shared)
        else:
            guess = STAND_IN_GIB["forked" if self.forked else "cold"]
        return guess + max(0.0, self.cache_gib - 1)

    def ahead_gib(self) -> float:
        """What its start takes in addition: the memory of a fork server, where none runs."""
        described = self.launch.environment.describe()
        if not self.forked or any(template.environment == described for template in templates()):
            return 0.0
        return FORK_SERVER_GIB

    def learn(self, gib: float) -> None:
        """Keeps the memory that a server has taken, if it is the largest so far."""
        with FileLock(_file().with_suffix(".lock"), thread_local=False):
            measured = _measured()
            if gib > measured.get(self.key, 0.0):
                half = _file().with_suffix(".half")
                half.write_text(json.dumps({**measured, self.key: round(gib, 3)}, indent=1, sort_keys=True))
                half.replace(_file())


def taken_gib(root: int) -> float:
    """The memory of a server without what it shares with its fork server: its unshared pages (USS)."""
    total = 0
    for pid in tree_pids(root):
        with suppress(psutil.Error):
            total += psutil.Process(pid).memory_full_info().uss
    return total / 2**30


def fork_servers_gib() -> float:
    """The memory of this user's fork servers, without the servers forked from them."""
    total = 0
    servers = set[int]().union(*(tree_pids(record.supervisor) for record in running()))
    for template in templates():
        with suppress(psutil.Error):
            base = psutil.Process(template.pid)
            size = base.memory_info()
            total += size.rss - size.shared
            total += sum(_unshared(each) for each in base.children() if each.pid not in servers)
    return total / 2**30


def _unshared(template: psutil.Process) -> int:
    """Unshared bytes of a template, some seconds old at most: the kernel visits each page to count them."""
    measured_at, found = _templates.get(template, (-MEASURED_FOR_S, 0))
    if time.monotonic() - measured_at >= MEASURED_FOR_S:
        found = template.memory_full_info().uss
        _templates[template] = (time.monotonic(), found)
    return found


def _measured() -> dict[str, float]:
    with suppress(OSError, ValueError):
        return {str(key): float(gib) for key, gib in json.loads(_file().read_text()).items()}
    return {}


def _file() -> Path:
    return state_dir() / "needs.json"
