"""`vllm-harness regression --changed`: the families that a change can touch, before and after it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from vllm_harness._defects.registry import load_defects
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import UsageError
from vllm_harness._regression.changed.change import Change, few
from vllm_harness._regression.changed.touched import touched_families
from vllm_harness._regression.changed.unchanged import cells_before
from vllm_harness._regression.results.cells import Cell, RegressionRun
from vllm_harness._regression.results.compare import changes
from vllm_harness._regression.results.defect_changes import changed_defects
from vllm_harness._regression.results.known_defects import by_family, parser_defects
from vllm_harness._regression.selection import Selection
from vllm_harness.cli.regression_cells import whole_cells
from vllm_harness.cli.regression_options import RegressionOptions, console, note
from vllm_harness.cli.regression_table import show_cells, show_changes, show_defect_changes


def refuse_with_changed(options: RegressionOptions, ray: str) -> None:
    """Raises UsageError where an option is given that has no meaning with `--changed`."""
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


def run_changed(spec: str, revision: str, selection: Selection, parallel: int) -> int:
    """Runs the families that a change can have touched, prints what changed, and returns the exit code.

    Args:
        spec: the spec of a working tree.
        revision: the revision of a checkout to compare with; empty for HEAD.
        selection: the families from which the touched ones are chosen.
        parallel: the number of interpreters at a time.
    """
    change = Change.of(spec, revision, note)
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
    new = whole_cells(run, after, case_sets, "cells after it", engine="in-process", parallel=parallel)
    return _show(old, new, change.before.title, run)


def _show(old: Sequence[Cell], new: Sequence[Cell], title: str, run: RegressionRun) -> int:
    defects = parser_defects(load_defects())
    show_cells(console, new, None, by_family(defects))
    console.print(f"run: {run.folder}")
    code = show_changes(console, changes(old, new), title)
    show_defect_changes(console, changed_defects(defects, old, new))
    return code
