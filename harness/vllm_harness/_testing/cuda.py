"""Fails a run of CUDA tests on a machine without CUDA, so that it does not pass without any test."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from vllm_harness._machine.gpus import gpus


def explain_missing_gpu(config: pytest.Config, items: Iterable[pytest.Item], marker: str) -> None:
    """Ends a run with `-m MARKER` that has no test on CUDA, with one line that gives the reason.

    Args:
        config: pytest's configuration, with its marker expression.
        items: the tests that will run.
        marker: the marker that selects tests on CUDA.

    Raises:
        pytest.exit.Exception: the expression selects the marker, and no test has it.
    """
    words = config.option.markexpr.split()
    if marker not in words or "not" in words or any(item.get_closest_marker(marker) for item in items):
        return
    why = "the server environment is not built for CUDA" if gpus() else "no CUDA device on this machine"
    pytest.exit(
        f"-m {marker}: {why}, so nothing ran; `vllm-harness doctor` names what is missing", returncode=2
    )
