"""`vllm-harness repro`: sends a defect's requests to a real server, and reports whether the defect shows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import Defects, find, load_defects
from vllm_harness._defects.repro.measured import (
    Measured,
    MeasuredRun,
    agrees,
    case_of,
    expected_verdict,
    shards_of,
    target_of,
)
from vllm_harness._defects.repro.report import curve_table
from vllm_harness._defects.repro.reproducer import checked, is_reproducible, jobs_of, run_job
from vllm_harness._defects.repro.table import LETTERS, Table, contradicted, specifier, write_versions
from vllm_harness._defects.repro.verdict import Reproduction
from vllm_harness._environments.resolve import resolve
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import HarnessError, UsageError
from vllm_harness._exchange.endpoint import Endpoint, attach
from vllm_harness._files.paths import run_folder, state_dir
from vllm_harness._protocol.core.events import Json
from vllm_harness._runs.records import Kind
from vllm_harness._server.progress import ConsoleProgress
from vllm_harness._terminal.status import shown
from vllm_harness._terminal.tables import plain_console, show_table
from vllm_harness.cli.by_default import by_default
from vllm_harness.cli.counting import counted
from vllm_harness.cli.executor import executor_of, keep_command, resume
from vllm_harness.cli.run_folder import kept_run

HEADINGS = ("id", "vLLM", "verdict", "the entry says", "")
RUNS = "repro"


class NotReproduced(HarnessError):
    """A report of a defect was requested, but the vLLM under test does not show the defect."""


app = typer.Typer(
    cls=by_default("run"), no_args_is_help=True, help="Reproduce known defects on real servers."
)


@app.command("run")
def run(
    context: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(help="The ids of entries.")] = None,
    all_: bool = False,
    vllm: list[str] | None = None,
    server_url: str = "",
    api_key_env: str | None = None,
    run_: str = "",
    jobs: int | None = None,
    markdown: bool = False,
    script: bool = False,
    folder: Path | None = None,
    json_: bool = False,
    ray: str = "",
    bundle: list[Path] | None = None,
    resume_: str = "",
) -> None:
    """Reproduce known defects on real servers (`repro ID` is `repro run ID`).

    --vllm accepts several environments, repeated or separated by commas. The
    exit code is 0 if each verdict agrees with the versions in the entry, 1 if
    a verdict does not, and 2 for an unknown id or an entry without steps.
    """
    if resume_:
        resume(RUNS, resume_, ray, context.find_root().command.main, bundles=bundle)
    defects = _chosen(ids or [], all_, load_defects(folder))
    if ray and (server_url or len(defects) == 1):
        raise UsageError("--ray needs several defects, and no --server-url", hint="leave --ray out")
    environments = [] if server_url else environments_of(vllm)
    if markdown or script:
        print(_file(defects, environments, markdown), end="")
    elif server_url:
        _show([_on_running_server(attach(server_url, api_key_env), each) for each in defects], defects, json_)
    elif len(defects) == 1:
        _show([_on_its_server(defects[0], each) for each in environments], defects, json_)
    else:
        _show(measured_in(defects, environments, run_, jobs, ray, bundle), defects, json_)


def _file(defects: Sequence[Defect], environments: Sequence[VllmUnderTest], as_markdown: bool) -> str:
    """Reproduces one defect, and returns its report or its script."""
    if len(defects) != 1 or len(environments) != 1:
        raise UsageError(
            "--markdown and --script need exactly one defect and one environment", hint="name one id"
        )
    (defect,), (vllm,) = defects, environments
    measured = _on_its_server(defect, vllm)
    if measured.verdict != "reproduced":
        raise NotReproduced(
            f"{defect.id} is not reproduced on {vllm.environment.describe()}: {measured.verdict}",
            hint="choose a version that shows it with --vllm",
        )
    files = checked(defect).files(measured.outcome, vllm.environment.describe())
    return files.report if as_markdown else files.script


def _chosen(ids: list[str], every: bool, defects: Defects) -> list[Defect]:
    if bool(ids) == every:
        raise UsageError("give ids, or --all", hint="`vllm-harness defects` lists the ids")
    if every:
        return [defect for defect in defects.values() if is_reproducible(defect)]
    return [checked(find(each, defects)).defect for each in ids]


def environments_of(specs: list[str] | None) -> list[VllmUnderTest]:
    """The environments that `--vllm` names, which are created if they do not exist yet."""
    every = [spec for given in specs or [] for spec in given.split(",") if spec] or [""]
    with shown() as progress:
        return [VllmUnderTest(spec, resolve(spec or None, create=True, progress=progress)) for spec in every]


def _on_its_server(defect: Defect, vllm: VllmUnderTest) -> Measured:
    (job,) = jobs_of([defect])
    ((_, outcome),) = run_job(job, vllm.environment, progress=ConsoleProgress())
    return Measured.of(defect.id, vllm.spec, vllm.environment.vllm_version, outcome)


def _on_running_server(endpoint: Endpoint, defect: Defect) -> Measured:
    if defect.repro is None:
        outcome = Reproduction("not applicable", "a parser's case needs a server of the parser's family")
        return Measured.of(defect.id, endpoint.base_url, "0", outcome)
    from vllm_harness._defects.repro.steps import RequestedSteps
    from vllm_harness._server.attached import AttachedServer

    steps = RequestedSteps(defect, defect.repro)
    server = AttachedServer(endpoint, steps.entry)
    return Measured.of(defect.id, endpoint.base_url, server.vllm_version, steps.on_server(server))


def measured_in(
    defects: Sequence[Defect],
    environments: Sequence[VllmUnderTest],
    name: str,
    parallel: int | None,
    ray: str = "",
    bundles: Sequence[Path] | None = None,
) -> list[Measured]:
    """Measures the verdicts that a run lacks, and returns all requested verdicts of the run."""
    folder = run_folder(RUNS, name or time.strftime("%Y%m%d-%H%M%S"))
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


@app.command()
def table(
    runs: Annotated[list[str], typer.Argument(help="The names of runs of `repro`, or their folders.")],
    write: bool = False,
) -> None:
    """Show which version has which defect, according to runs; exit 1 if an entry disagrees.

    --write updates the table of verdicts and the entries.
    """
    defects = load_defects()
    measured = [each for run in runs for each in MeasuredRun(run_folder(RUNS, run)).verdicts().values()]
    merged = Table.of(each for each in measured if each.id in defects)
    if not merged.verdicts:
        raise UsageError(f"no verdicts in {', '.join(runs)}", hint=f"runs are in {state_dir() / RUNS}")
    rows = [(defect, *row) for defect, row in merged.verdicts.items()]
    show_table(plain_console(), ("id", *(each.removesuffix(".0") for each in merged.versions)), rows)
    print(" ".join(f"{letter} {verdict}" for verdict, letter in LETTERS.items()))
    contradictions = contradicted(defects, merged)
    for defect, verdicts in contradictions.items():
        says = defects[defect].versions or "all versions"
        results = ", ".join(f"{version} {verdict}" for version, verdict in sorted(verdicts.items()))
        print(f"{defect}: the entry says {says}; measured: {results}")
    if write:
        whole = Table.read().with_later(merged, kept=defects)
        whole.write()
        for defect in contradictions:
            if versions := specifier(whole.row(defect)):
                write_versions(defects[defect], versions)
    elif contradictions:
        raise typer.Exit(1)


@app.command()
def new(
    defect_id: Annotated[str, typer.Argument(help="The id of the new entry.")],
    test: str = "",
    results: Path | None = None,
    cell: str = "",
    family: str = "",
    case: str = "",
    capture: Path | None = None,
    model: str = "qwen3",
) -> None:
    """Print a draft of a new entry, made from a failed test, a cell or recorded traffic.

    Give --test with --results, --cell with --family and --case, or --capture
    with the model that served the traffic.
    """
    from vllm_harness._defects.repro.draft import as_yaml, from_capture, from_cell, from_test

    if [bool(test), bool(cell), bool(capture)].count(True) != 1:
        raise UsageError(
            "give one of --test, --cell and --capture", hint="see `vllm-harness repro new --help`"
        )
    if capture:
        draft = from_capture(capture, model)
    elif cell:
        draft = from_cell(cell, family, case)
    else:
        draft = from_test(results or Path(), test)
    print(as_yaml(defect_id, draft), end="")


def _show(measured: Sequence[Measured], defects: Sequence[Defect], as_json: bool) -> None:
    """Prints the verdicts. Raises Exit(1) if a verdict does not agree with its entry."""
    by_id = {defect.id: defect for defect in defects}
    agreeing = [agrees(by_id[each.id], each) for each in measured]
    if as_json:
        records = zip(measured, agreeing, strict=True)
        print(json.dumps([{**each.model_dump(), "agrees": agreed} for each, agreed in records], indent=2))
    else:
        rows = [_row(by_id[each.id], each) for each in measured]
        show_table(plain_console(), HEADINGS, rows)
        if len(measured) == 1:
            print(*_evidence(defects[0], measured[0].answers), sep="\n")
    if not all(agreeing):
        raise typer.Exit(1)


def _row(defect: Defect, measured: Measured) -> tuple[str, ...]:
    says = "" if agrees(defect, measured) else expected_verdict(defect, measured.version)
    return measured.id, measured.version, measured.verdict, says, measured.why


def _evidence(defect: Defect, answers: Sequence[Json]) -> Iterator[str]:
    yield f"\n{defect.title}"
    if defect.repro is None:
        for answer in answers:
            if table := list(curve_table(answer)):
                yield f"\n{answer['case']}, {answer['delivery']}:\n"
                yield from table
                continue
            yield f"answer: {json.dumps(answer, indent=2, ensure_ascii=False)}"
        return
    for step, answer in zip(defect.repro.steps, answers, strict=False):
        yield f"\n{step.method} {step.path}"
        if step.body is not None:
            yield json.dumps(step.body, indent=2, ensure_ascii=False)
        for each in step.say:
            yield f"the model says: {json.dumps(each, ensure_ascii=False)}"
        yield f"answer: {json.dumps(answer, indent=2, ensure_ascii=False)}"
    yield f"\ncorrect if     {defect.repro.expected}"
    yield f"the defect if  {defect.repro.actual}"
