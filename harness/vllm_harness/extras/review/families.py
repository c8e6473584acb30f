"""`vllm-harness regression --changed`: runs the families that a change can affect, before and after it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from vllm_harness._defects.registry import load_defects
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import UsageError
from vllm_harness._machine import interrupts
from vllm_harness._regression.results.cells import Cell, RegressionRun
from vllm_harness._regression.results.compare import changes
from vllm_harness._regression.results.known_defects import by_family, parser_defects
from vllm_harness.cli.regression_options import RegressionOptions, console, note
from vllm_harness.cli.regression_table import show_cells, show_changes
from vllm_harness.extras.review.cells import whole_cells
from vllm_harness.extras.review.change import Change, few
from vllm_harness.extras.review.defect_changes import changed_defects, show_defect_changes
from vllm_harness.extras.review.touched import touched_families
from vllm_harness.extras.review.unchanged import cells_before


def run_changed(options: RegressionOptions, ray: str) -> int:
    """Runs the families that a change can affect, prints what changed, and returns the exit code.

    Raises:
        UsageError: an option is given that `--changed` cannot be combined with, or no working tree is given.
    """
    _check(options, ray)
    spec, selection, parallel = options.vllm, options.selection(), options.parallel
    change = Change.of(spec, options.changed_from, note)
    console.print(str(change))
    if not change.files:
        return 0
    families = touched_families(change.package, selection.families, change.files)
    if not families:
        console.print("no parser of these families imports what changed: nothing to run")
        return 0
    names = few(tuple(family.name for family in families))
    console.print(f"imported by the parsers of {len(families)} families: {names}")
    case_sets = replace(selection, families=families).case_sets()
    before, after = change.before.vllm(note), VllmUnderTest(spec, change.environment)
    old = whole_cells(
        cells_before(), before, case_sets, "cells before the change", engine="in-process", parallel=parallel
    )
    run = RegressionRun.named(time.strftime("%Y%m%d-%H%M%S"))
    interrupts.keep(run.folder)
    new = whole_cells(run, after, case_sets, "cells after it", engine="in-process", parallel=parallel)
    return _show(old, new, change.before.title, run)


def _check(options: RegressionOptions, ray: str) -> None:
    others = {
        "--baseline": options.baseline,
        "--write-baseline": options.write_baseline,
        "--coverage": options.coverage,
        "--run": options.run,
        "--engine http": options.engine == "http",
        "--ray": ray,
    }
    if given := [name for name, value in others.items() if value]:
        raise UsageError(
            f"--changed cannot be combined with {given[0]}: it compares with the code before the change",
            hint=f"leave {given[0]} out",
        )


def _show(old: Sequence[Cell], new: Sequence[Cell], title: str, run: RegressionRun) -> int:
    defects = parser_defects(load_defects())
    show_cells(console, new, None, by_family(defects))
    console.print(f"run: {run.folder}")
    code = show_changes(console, changes(old, new), title)
    show_defect_changes(console, changed_defects(defects, old, new))
    return code
