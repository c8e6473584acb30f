"""How much memory a server takes on CPU: measured at each server's end and kept, with a guess until then."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from filelock import FileLock

from vllm_harness.errors import UsageError
from vllm_harness.files.paths import state_dir
from vllm_harness.server.fork_server import templates
from vllm_harness.server.launch import Launch
from vllm_harness.server.process_tree import tree_pids
from vllm_harness.server.records import running

STAND_IN_GIB = {"forked": 0.7, "cold": 2.2}
"""Of a stand-in that was never measured; those of gpt-oss and Qwen 3 take 0.3 and 1.9 GiB on vLLM 0.32.0."""
FORK_SERVER_GIB = 1.1
"""What a fork server takes with one model's tokenizer, before it can be measured."""
MARGIN, SPARE_GIB = 1.25, 0.1
"""What a measured server may take beyond what was seen of it."""


@dataclass(frozen=True)
class Start:
    """A launch on CPU, and how it is started.

    Attributes:
        forked: from the fork server, which shares most of its memory with it.
    """

    launch: Launch
    forked: bool

    @property
    def cache_gib(self) -> float:
        """Size of its KV cache; it takes that only as the cache fills, but vLLM wants it to be free."""
        return number(self.launch.environ(), "VLLM_CPU_KVCACHE_SPACE", 1.0)

    @property
    def key(self) -> str:
        """What servers have in common that take as much."""
        launch, how = self.launch, "forked" if self.forked else "cold"
        version = launch.environment.vllm_version
        return f"{launch.entry.name} {launch.lane} {how} {version} {launch.frontend} {self.cache_gib:g}"

    def need_gib(self) -> float:
        """What it takes: as measured, with a margin, else a guess."""
        if measured := _measured().get(self.key):
            return measured * MARGIN + SPARE_GIB
        if self.launch.lane == "live":
            shared = FORK_SERVER_GIB if self.forked else 0.0
            guess = max(1.0, self.launch.entry.hardware.cpu_memory_gib - shared)
        else:
            guess = STAND_IN_GIB["forked" if self.forked else "cold"]
        return guess + max(0.0, self.cache_gib - 1)

    def ahead_gib(self) -> float:
        """What is taken besides, once, to start it: a fork server where none runs."""
        described = self.launch.environment.describe()
        if not self.forked or any(template.environment == described for template in templates()):
            return 0.0
        return FORK_SERVER_GIB

    def learn(self, gib: float) -> None:
        """Keeps what a server has taken, if it is the most so far."""
        with FileLock(_file().with_suffix(".lock"), thread_local=False):
            measured = _measured()
            if gib > measured.get(self.key, 0.0):
                half = _file().with_suffix(".half")
                half.write_text(json.dumps({**measured, self.key: round(gib, 3)}, indent=1, sort_keys=True))
                half.replace(_file())


def taken_gib(root: int) -> float:
    """What a server takes beyond what it shares with its fork server, by the pages that are its own (USS)."""
    total = 0
    for pid in tree_pids(root):
        with suppress(psutil.Error):
            total += psutil.Process(pid).memory_full_info().uss
    return total / 2**30


def fork_servers_gib() -> float:
    """What this user's fork servers take, without the servers forked from them."""
    total = 0
    servers = set[int]().union(*(tree_pids(record.supervisor) for record in running()))
    for template in templates():
        with suppress(psutil.Error):
            base = psutil.Process(template.pid)
            size = base.memory_info()
            total += size.rss - size.shared
            total += sum(each.memory_full_info().uss for each in base.children() if each.pid not in servers)
    return total / 2**30


def _measured() -> dict[str, float]:
    with suppress(OSError, ValueError):
        return {str(key): float(gib) for key, gib in json.loads(_file().read_text()).items()}
    return {}


def _file() -> Path:
    return state_dir() / "needs.json"


def number(environ: Mapping[str, str], name: str, default: float) -> float:
    """A variable's value. Raises UsageError where it is no number."""
    text = environ.get(name) or str(default)
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{name} is {text!r}, not a number") from None
