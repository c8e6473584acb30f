"""pytest-xdist: each worker is a separate run, with its own servers and results.

Leases, which all runs on a machine share, keep the workers' servers within its memory, so a worker may wait
for another. The forks of `--vllm-at-once`, which share a server, cannot be combined with workers.
"""

from __future__ import annotations

from typing import Any

import pytest

RESULTS = "vllm_harness_results"
_FOLDERS = pytest.StashKey[list[str]]()


def refuse_forks(config: pytest.Config) -> None:
    """Raises pytest.UsageError if a run has both workers and forks."""
    has_workers = getattr(config.option, "numprocesses", None) or hasattr(config, "workerinput")
    if config.option.vllm_at_once and has_workers:
        raise pytest.UsageError(
            "--vllm-at-once cannot be combined with pytest-xdist's -n: forks share a server, and each worker "
            "starts its own"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Stores the path of a worker's results."""
    if folder := getattr(node, "workeroutput", {}).get(RESULTS):
        node.config.stash.setdefault(_FOLDERS, []).append(folder)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Prints the paths of the workers' results."""
    for folder in config.stash.get(_FOLDERS, []):
        terminalreporter.write_line(f"vLLM servers of a worker, logs and results: {folder}")
