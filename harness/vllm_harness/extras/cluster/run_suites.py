"""`vllm-harness run --ray`: runs the suites on the nodes of a Ray cluster, with one run folder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_harness._configuration.model_entries import Frontend, Lane, load_models
from vllm_harness._configuration.targets import Machine, choose
from vllm_harness._environments.planned import plan
from vllm_harness._errors import HarnessError, UsageError
from vllm_harness._regression.selection import select_environments
from vllm_harness._runs.folder import PATTERN
from vllm_harness._runs.records import Kind, Outcome
from vllm_harness._runs.report.run import counts, read_run
from vllm_harness._server.records import run_folder
from vllm_harness._terminal.tables import plain_console, show_table
from vllm_harness.cli.counting import counted
from vllm_harness.cli.executor import COMMAND, executor_of, keep_command
from vllm_harness.cli.run_folder import kept_run
from vllm_harness.extras.cluster.places import placements_in
from vllm_harness.extras.cluster.suites.gathering import gather
from vllm_harness.extras.cluster.suites.on_node import SuiteResult
from vllm_harness.extras.cluster.suites.shards import TargetJob, shard_of, without

AUTO = "auto"
GPUS_OF_A_NODE = (math.inf,) * 64
"""No limit, as only Ray knows the nodes' GPUs; it refuses a target that needs more than they have."""
HEADINGS = ("target", "vLLM", "passed", "known", "findings", "skipped")
SHOWN_FINDINGS = 10

console = plain_console()
notes = plain_console(stderr=True)


@dataclass(frozen=True)
class ClusterRun:
    """The options of a run on a cluster.

    Attributes:
        address: the address of the cluster.
        models: names of entries or hub ids; empty for all.
        lane: the only lane to run, if any.
        vllm: server environments, separated by commas; empty for the default one.
        frontend: the front end of the servers.
        suites: folders of tests, relative to the checkout.
        arguments: additional arguments for pytest.
        folder: the folder of the run, or `auto`.
        bundles: the bundles to set up nodes from.
    """

    address: str
    models: Sequence[str]
    lane: Lane | None
    vllm: str
    frontend: Frontend
    suites: tuple[str, ...]
    arguments: tuple[str, ...]
    folder: str
    bundles: Sequence[Path] = ()


def run_on_cluster(**options: Any) -> int:
    """Runs the suites on a cluster.

    Args:
        options: the fields of `ClusterRun`.

    Returns:
        The exit code: 1 if there are findings.

    Raises:
        UsageError: an option is invalid, or the folder contains another run.
        HarnessError: a suite did not run.
    """
    run = ClusterRun(**options)
    jobs = _jobs(run)
    folder = run_folder() if run.folder == AUTO else Path(run.folder).absolute()
    if any(folder.glob(PATTERN)) and not (folder / COMMAND).exists():
        raise UsageError(f"{folder} already contains a run", hint="remove it, or name another folder")
    left = without(jobs, {placement.cell for placement in placements_in(folder)})
    keep_command(folder)
    with kept_run(Kind.SUITES, folder, ", ".join(dict.fromkeys(job.entry.name for job in jobs))) as writer:
        specs = [job.vllm.spec for job in jobs]
        several = len({job.vllm.name for job in jobs}) > 1
        shards = [shard_of(job) for job in left]
        versions = {
            cell: job.vllm.name for job, shard in zip(left, shards, strict=True) for cell in shard.cells
        }
        with (
            counted("suites", sum(len(shard.cells) for shard in shards)) as advance,
            executor_of(run.address, None, folder, tests=True, bundles=run.bundles, vllm=specs) as executor,
        ):

            def done(result: SuiteResult) -> None:
                gather(result, writer, versions[result.cell] if several else "")
                advance()

            errors = executor.run(shards, done)
        return _show_result(folder, errors)


def _jobs(run: ClusterRun) -> list[TargetJob]:
    specs = run.vllm or plan().spec
    jobs = []
    for vllm in select_environments(specs, run.frontend, "http", notes.print):
        machine = Machine(vllm.environment.device, GPUS_OF_A_NODE, run.frontend)
        choice = choose(load_models(), machine, models=run.models, lane=run.lane)
        for target in choice.targets:
            lane: Lane = "live" if target.lane == "live" else "scripted"
            jobs.append(TargetJob(vllm, target.entry, lane, run.suites, run.arguments))
    return jobs


def _show_result(folder: Path, errors: Sequence[HarnessError]) -> int:
    run = read_run(folder)
    rows = []
    for name, target in run.targets.items():
        number = counts(case for case in run.cases if case.target == name)
        shown = (Outcome.PASSED, Outcome.KNOWN, Outcome.FINDING, Outcome.SKIPPED)
        rows.append((name, target.vllm, *(str(number[outcome]) for outcome in shown)))
    show_table(console, HEADINGS, sorted(rows), set(HEADINGS[2:]))
    findings = run.of(Outcome.FINDING, Outcome.CANCELLED)
    for case in findings[:SHOWN_FINDINGS]:
        console.print(f"{case.target} {case.id}: {case.reason}", markup=False)
    if len(findings) > SHOWN_FINDINGS:
        console.print(f"... and {len(findings) - SHOWN_FINDINGS} more")
    console.print(f"run folder: {folder} (vllm-harness report {folder})", markup=False)
    if errors:
        for error in errors[1:]:
            console.print(str(error), markup=False)
        raise errors[0]
    return 1 if findings else 0
