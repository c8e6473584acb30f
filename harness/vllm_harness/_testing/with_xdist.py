"""pytest-xdist: each worker is a run of its own, with servers and results of its own; they share the memory.

The leases of all runs on a machine keep the workers' servers within its memory, so a worker may wait for
another's. Forks that share one server are `--vllm-at-once`; the two exclude each other.
"""

from __future__ import annotations

from typing import Any

import pytest

RESULTS = "vllm_harness_results"
_FOLDERS = pytest.StashKey[list[str]]()


def refuse_forks(config: pytest.Config) -> None:
    """Raises pytest.UsageError where a run has both workers and forks."""
    has_workers = getattr(config.option, "numprocesses", None) or hasattr(config, "workerinput")
    if config.option.vllm_at_once and has_workers:
        raise pytest.UsageError(
            "--vllm-at-once and pytest-xdist's -n exclude each other: forks share a server, each worker "
            "starts its own"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Notes where a worker keeps its results."""
    if folder := getattr(node, "workeroutput", {}).get(RESULTS):
        node.config.stash.setdefault(_FOLDERS, []).append(folder)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Names the workers' results."""
    for folder in config.stash.get(_FOLDERS, []):
        terminalreporter.write_line(f"vLLM servers of a worker, logs and results: {folder}")
