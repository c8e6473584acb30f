"""`vllm-harness run --ray`: the suites on the nodes of a Ray cluster, in one run folder."""

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
"""The nodes' GPUs are Ray's to know: a target that needs more than a node has is refused there."""
HEADINGS = ("target", "vLLM", "passed", "known", "findings", "skipped")
SHOWN_FINDINGS = 10

console = plain_console()
notes = plain_console(stderr=True)


@dataclass(frozen=True)
class ClusterRun:
    """What is asked for.

    Attributes:
        address: of the cluster.
        models: names of entries or hub ids; empty for all.
        lane: the only lane, if there is one.
        vllm: server environments by commas; empty for the default one.
        frontend: of the servers.
        suites: folders of tests, relative to the checkout.
        arguments: further ones of pytest.
        folder: of the run, or `auto`.
        bundles: that the nodes set themselves up from.
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
    """Runs the suites as the fields of `ClusterRun` say; gives the exit code: 1 where there are findings.

    Raises:
        UsageError: what is asked for cannot be run, or the folder holds another run.
        HarnessError: a suite did not run.
    """
    asked = ClusterRun(**options)
    jobs = _jobs(asked)
    folder = run_folder() if asked.folder == AUTO else Path(asked.folder).absolute()
    if any(folder.glob(PATTERN)) and not (folder / COMMAND).exists():
        raise UsageError(f"{folder} holds a run already", hint="remove it, or name another folder")
    left = without(jobs, {placed.cell for placed in placements_in(folder)})
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
            executor_of(
                asked.address, None, folder, tests=True, bundles=asked.bundles, vllm=specs
            ) as executor,
        ):

            def done(result: SuiteResult) -> None:
                gather(result, writer, versions[result.cell] if several else "")
                advance()

            errors = executor.run(shards, done)
        return _told(folder, errors)


def _jobs(asked: ClusterRun) -> list[TargetJob]:
    specs = asked.vllm or plan().spec
    jobs = []
    for vllm in select_environments(specs, asked.frontend, "http", notes.print):
        machine = Machine(vllm.environment.device, GPUS_OF_A_NODE, asked.frontend)
        choice = choose(load_models(), machine, models=asked.models, lane=asked.lane)
        for target in choice.targets:
            lane: Lane = "live" if target.lane == "live" else "scripted"
            jobs.append(TargetJob(vllm, target.entry, lane, asked.suites, asked.arguments))
    return jobs


def _told(folder: Path, errors: Sequence[HarnessError]) -> int:
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
