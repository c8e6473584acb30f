"""The cells of a run of parser regression, for the comparison of two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vllm_harness._regression.results.cells import Cell, RegressionRun

Key = tuple[str, str, str]
"""Environment, family and group of a cell."""


def cells_of(run: Path) -> dict[Key, dict[str, Any]]:
    """The cells of a run, without their duration, which differs between runs."""
    return {
        (cell.environment, cell.family, cell.group): cell.model_dump(exclude={"seconds"})
        for cell in RegressionRun(run).cells()
        if isinstance(cell, Cell)
    }
