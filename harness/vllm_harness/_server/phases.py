"""Recognises the phases of a server's start in its log."""

from __future__ import annotations

import re
from pathlib import Path

# (phase, pattern of the first log line that shows it); the patterns fit vLLM 0.22 to 0.33
PHASES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("import", re.compile(r"")),
    ("configuration", re.compile(r"non-default args|vLLM API server version|version \d+\.\d+\.\d+")),
    (
        "engine import",
        re.compile(
            r"Enabled custom fusions|Chunked prefill is enabled|Asynchronous scheduling|enforce eager", re.I
        ),
    ),
    ("engine", re.compile(r"Initializing a V1 LLM engine")),
    ("weights", re.compile(r"Starting to load model|Loading safetensors|Loading weights")),
    ("KV cache", re.compile(r"KV cache size|Available KV cache memory|for KV cache|Explicitly set")),
    ("warm-up", re.compile(r"Warming up|warmup model\)|Capturing CUDA graph|Graph capturing")),
    ("serving", re.compile(r"Starting vLLM (API )?server|Application startup complete|Uvicorn running")),
)


class PhaseTracker:
    """Follows a growing log file, which need not exist yet, and remembers the latest phase found in it."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._offset = log.stat().st_size if log.exists() else 0
        self._rest = b""
        self._index = 0

    @property
    def phase(self) -> str:
        """The name of the latest phase."""
        return PHASES[self._index][0]

    def advance(self) -> bool:
        """Reads the new lines of the log; returns whether the phase has changed."""
        before = self._index
        for line in self._new_lines():
            for index in range(self._index + 1, len(PHASES)):
                if PHASES[index][1].search(line):
                    self._index = index
        return self._index != before

    def _new_lines(self) -> list[str]:
        try:
            with self._log.open("rb") as file:
                file.seek(self._offset)
                data = file.read(4_000_000)
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line.decode("utf-8", "replace") for line in lines]
