"""Reads the cells of a parser regression run, to compare two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vllm_harness._regression.results.cells import Cell, RegressionRun

Key = tuple[str, str, str]
"""The environment, family and group of a cell."""


def cells_of(run: Path) -> dict[Key, dict[str, Any]]:
    """The cells of a run, without their durations, which differ between runs."""
    return {
        (cell.environment, cell.family, cell.group): cell.model_dump(exclude={"seconds"})
        for cell in RegressionRun(run).cells()
        if isinstance(cell, Cell)
    }
