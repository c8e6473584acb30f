"""`vllm-harness regression --changed`: runs the families that a change can affect, before and after it."""

from __future__ import annotations

import time
from dataclasses import replace

from vllm_harness._defects.registry import load_defects
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import UsageError
from vllm_harness._machine import interrupts
from vllm_harness._regression.results.cells import RegressionRun
from vllm_harness._regression.results.known_defects import by_family, parser_defects
from vllm_harness.cli.regression_options import RegressionOptions, console, note
from vllm_harness.cli.regression_table import show_cells
from vllm_harness.extras.review.both_sides import Side
from vllm_harness.extras.review.change import Change, few
from vllm_harness.extras.review.grouping import causes_of
from vllm_harness.extras.review.parsers import ParserPart
from vllm_harness.extras.review.show import regressed_lines
from vllm_harness.extras.review.touched import touched_families
from vllm_harness.extras.review.unchanged import cells_before


def run_changed(options: RegressionOptions, ray: str) -> int:
    """Runs the families that a change can affect, prints what changed, and returns the exit code.

    Raises:
        UsageError: an option is given that `--changed` cannot be combined with, or no working tree is given.
    """
    _check(options, ray)
    spec, selection, parallel = options.vllm, options.selection(), options.parallel
    change = Change.of_tree(spec, options.changed_from, note)
    console.print(str(change))
    if not change.files:
        return 0
    families = touched_families(change.package, selection.families, change.files)
    if not families:
        console.print("no parser of these families imports what changed: nothing to run")
        return 0
    names = few(family.name for family in families)
    console.print(f"imported by the parsers of {len(families)} families: {names}")
    run = RegressionRun.named(time.strftime("%Y%m%d-%H%M%S"))
    interrupts.keep(run.folder)
    before = Side(change.before.vllm(note), cells_before())
    after = Side(VllmUnderTest(spec, change.environment), run)
    part = ParserPart(before, after, parallel, False, note, time.monotonic())
    result = part.in_process(replace(selection, families=families))
    show_cells(console, result.cells, None, by_family(parser_defects(load_defects())))
    console.print(f"run: {run.folder}")
    for line in regressed_lines(causes_of(result.failures, lambda _: change.files)):
        console.print(line)
    for turn in result.defects:
        console.print(f"{turn.turn}: {turn.id} ({few(turn.families, 4)}): {turn.title}")
    flaky = f", {len(result.flaky)} flaky" if result.flaky else ""
    regressed, title = len(result.failures), change.before.title
    console.print(f"{regressed} regressed, {result.fixed} fixed{flaky} compared with {title}")
    return 1 if regressed else 0


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
