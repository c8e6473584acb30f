"""Measures many defects in a run folder of `repro`, on this machine or on a cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.repro.run import REPRO, MeasuredRun, case_of, shards_of, target_of
from vllm_harness._defects.repro.verdict import Measured
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._files.paths import run_folder
from vllm_harness._runs.records import Kind
from vllm_harness._terminal.tables import plain_console
from vllm_harness.cli.counting import counted
from vllm_harness.cli.executor import executor_of, keep_command, resume
from vllm_harness.cli.run_folder import kept_run

__all__ = ["REPRO", "measured_in", "resume"]


def measured_in(
    defects: Sequence[Defect],
    environments: Sequence[VllmUnderTest],
    name: str,
    parallel: int | None,
    ray: str = "",
    bundles: Sequence[Path] | None = None,
) -> list[Measured]:
    """Measures the verdicts that a run lacks, and returns all requested verdicts of the run."""
    folder = run_folder(REPRO, name or time.strftime("%Y%m%d-%H%M%S"))
    keep_command(folder)
    run = MeasuredRun(folder)
    known = run.verdicts()
    requested = {(defect.id, vllm.spec) for vllm in environments for defect in defects}
    console = plain_console(stderr=True)
    if finished := len(requested & known.keys()):
        console.print(f"{finished} verdicts of this run already exist")
    by_id = {defect.id: defect for defect in defects}
    specs = [each.spec for each in environments]
    with (
        kept_run(Kind.REPRO, folder, folder.name) as writer,
        executor_of(ray, parallel, folder, bundles=bundles, vllm=specs) as executor,
        counted("defects", len(requested - known.keys())) as advance,
    ):

        def keep(measured: Measured) -> None:
            run.write(measured)
            writer.write(target_of(measured))
            writer.write(case_of(by_id[measured.id], measured))
            advance()

        if errors := executor.run(shards_of(defects, environments, known), keep):
            raise errors[0]
    console.print(f"run: {run.path}")
    return [verdict for key, verdict in sorted(run.verdicts().items()) if key in requested]
