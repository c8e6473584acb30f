"""`vllm-harness regression`: every parser over versions of vLLM."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from vllm_harness import _extensions as extensions
from vllm_harness._defects.registry import load_defects
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import HarnessError, UsageError
from vllm_harness._machine.shard import Executor
from vllm_harness._regression.cases.groups import GenerationPlan
from vllm_harness._regression.cases.meanings import FILE as MEANINGS
from vllm_harness._regression.engines.plan import Engine
from vllm_harness._regression.listing import case_record, family_record
from vllm_harness._regression.results import compare
from vllm_harness._regression.results.cells import CaseVerdict, Cell, RegressionRun
from vllm_harness._regression.results.known_defects import by_family, explain, parser_defects
from vllm_harness._regression.results.run_records import cases_of, target_of
from vllm_harness._regression.run import run_batches, unfinished
from vllm_harness._regression.search import SmallestFailure, search
from vllm_harness._regression.selection import (
    Selection,
    on_tokenizers,
    select_apis,
    select_environments,
    select_families,
    select_groups,
)
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.records import Kind
from vllm_harness._scripted.families import load_families
from vllm_harness._server.leases.allocation import interpreters
from vllm_harness._terminal.tables import show_table
from vllm_harness.cli.counting import counted
from vllm_harness.cli.defects import FOLDER
from vllm_harness.cli.executor import BUNDLE, RAY, RESUME, executor_of, keep_command, resume
from vllm_harness.cli.interrupted import kept_at
from vllm_harness.cli.options import AS_JSON, with_options
from vllm_harness.cli.regression_changed import groups_of_a_change, refuse_with_changed, run_changed
from vllm_harness.cli.regression_options import (
    ENGINE,
    GROUPS_OF_CASES,
    MEANINGS_FILE,
    PARSERS,
    RegressionOptions,
    console,
    notes,
)
from vllm_harness.cli.regression_table import (
    DefectsByFamily,
    show_cells,
    show_changes,
    show_engine_differences,
    show_explained,
    show_smallest_failures,
)
from vllm_harness.cli.run_folder import kept_run

app = typer.Typer(help="Run every parser over versions of vLLM, without a GPU.")


@app.callback(invoke_without_command=True)
@with_options
def regression(
    context: typer.Context,
    *,
    on: RegressionOptions,
    ray: RAY = "",
    bundle: BUNDLE = None,
    resumed: RESUME = "",
) -> None:
    """Run the cases of each family through vLLM's own parsers; exit 1 where a case fails."""
    if context.invoked_subcommand:
        return
    if resumed:
        resume("regression", resumed, ray, context.find_root().command.main, bundles=bundle)
    if on.changed_from and not on.changed:
        raise UsageError("--changed-from says what --changed compares with", hint="add --changed")
    if on.changed:
        refuse_with_changed(
            {
                "--baseline": on.baseline,
                "--write-baseline": on.write_baseline,
                "--coverage": on.coverage,
                "--run": on.run,
                "--engine http": on.engine == "http",
                "--ray": ray,
            }
        )
    baseline = _baseline(on.baseline, on.engine)
    selection = Selection(
        tuple(on_tokenizers(select_families(on.parsers, on.models), on.tokenizers)),
        groups_of_a_change(on.groups) if on.changed else select_groups(on.groups),
        on.engine,
        tuple(on.only or ()),
        on.meanings,
        GenerationPlan(on.budget, on.seed),
        select_apis(on.apis),
        on.cpu_s,
    )
    at_a_time = on.jobs or interpreters()
    if on.changed:
        raise typer.Exit(run_changed(on.vllm, on.changed_from, selection, at_a_time))
    environments = select_environments(on.vllm, on.frontend, on.engine, notes.print)
    if on.write_baseline and len(environments) != 1:
        raise UsageError("--write-baseline takes one environment", hint="give one to --vllm")
    if on.coverage and ray:
        raise UsageError("--coverage is measured on this machine", hint="leave --ray out")
    if on.coverage:
        show_coverage = extensions.load(extensions.PARSER_COVERAGE, "--coverage")
        case_sets = [cases for cases in selection.case_sets() if cases.cases]
        show_coverage(environments[0].environment, case_sets, parallel=at_a_time)
        return
    folder = RegressionRun.named(on.run or time.strftime("%Y%m%d-%H%M%S"))
    defects = by_family(parser_defects(load_defects()))
    keep_command(folder.folder)
    further = f"the same with --run {folder.folder} goes on"
    with (
        kept_at(folder.folder, further),
        kept_run(Kind.REGRESSION, folder.folder, folder.folder.name, on.seed) as writer,
    ):
        vllms = [each.spec for each in environments]
        with executor_of(ray, on.jobs, folder.folder, bundles=bundle, vllm=vllms) as executor:
            cells, errors = _run(folder, environments, selection, executor, writer, defects)
        show_cells(console, cells, baseline, defects)
        if "cost" in selection.groups:
            extensions.load(extensions.COST_TABLE)(console, cells)
        found = [] if baseline else _search(folder, environments, selection, at_a_time)
        console.print(f"run: {folder.folder}")
        if on.write_baseline:
            compare.write_baseline(compare.baseline_of(environments[0].name, cells), on.write_baseline)
            console.print(f"baseline: {on.write_baseline}")
        if errors:
            raise errors[0]
        if baseline:
            raise typer.Exit(_compare(baseline, cells))
        failed = any(cell.start_error or cell.count(CaseVerdict.FAILED) for cell in cells)
        raise typer.Exit(1 if not on.write_baseline and (found or failed) else 0)


def _baseline(path: Path | None, engine: Engine) -> compare.Baseline | None:
    """The baseline of a file. Raises UsageError where it was recorded with the other engine."""
    known = compare.read_baseline(path) if path else None
    if known and known.engine != engine:
        raise UsageError(
            f"{path} was recorded with the engine {known.engine}; this run uses {engine}",
            hint=f"add --engine {known.engine}, or name another baseline",
        )
    return known


def _run(
    run: RegressionRun,
    environments: list[VllmUnderTest],
    selection: Selection,
    executor: Executor,
    writer: RunWriter,
    defects: DefectsByFamily,
) -> tuple[list[Cell], list[HarnessError]]:
    """Runs the cells that have not finished; gives all that were selected, and the errors of the others."""
    case_sets = selection.case_sets()
    shares = executor.deal(len(case_sets), apart=selection.engine == "http")
    batches = unfinished(run, environments, case_sets, engine=selection.engine, parallel=shares)
    total = sum(len(batch.case_sets) for batch in batches)
    if finished := len(environments) * sum(bool(cases.cases) for cases in case_sets) - total:
        notes.print(f"{finished} cells of this run have finished before")
    with counted("cells", total) as advance:

        def done(cell: Cell) -> None:
            writer.write(target_of(cell))
            for case in cases_of(cell, defects):
                writer.write(case)
            advance()

        errors = run_batches(run, batches, parallel=shares, done=done, executor=executor)
    names, families = {vllm.name for vllm in environments}, {family.name for family in selection.families}
    cells = [
        cell
        for cell in (run.cells() if run.has_cells() else ())
        if cell.environment in names
        and cell.family in families
        and cell.group in selection.groups
        and cell.engine == selection.engine
    ]
    return cells, errors


def _search(
    run: RegressionRun, environments: list[VllmUnderTest], selection: Selection, parallel: int
) -> list[SmallestFailure]:
    """The smallest meanings that show each kind of failure, kept beside the cells."""
    if "properties" not in selection.groups or selection.engine != "in-process":
        return []
    generation, families = selection.generation, selection.families
    found = []
    with counted("families searched", len(environments) * len(families)) as advance:
        for vllm in environments:
            folder = run.folder_of(vllm.name) / f"found-{generation.budget}-{generation.seed}"
            found += search(
                vllm.environment,
                families,
                generation,
                folder,
                parallel=parallel,
                done=lambda _: advance(),
            )
    show_smallest_failures(console, found, run.folder)
    return found


def _compare(known: compare.Baseline, cells: list[Cell]) -> int:
    if missing := sum(not known.covers_cell(cell) for cell in cells):
        console.print(f"{missing} cells are not in the baseline, and were not compared")
    return show_changes(console, compare.against(known, cells), f"the baseline of vLLM {known.vllm}")


@app.command()
def families(as_json: AS_JSON = False) -> None:
    """List the families: their parsers, their dialects, and where each format is published."""
    records = [family_record(family) for family in load_families().values()]
    if as_json:
        print(json.dumps(records, indent=2))
        return
    columns = ("name", "tool_parser", "reasoning_parser", "dialect", "source")
    rows = [tuple(record[column] or "-" for column in columns) for record in records]
    show_table(console, ("family", "tool parser", "reasoning parser", "dialect", "source"), rows)


@app.command()
def cases(
    parsers: PARSERS = "",
    groups: GROUPS_OF_CASES = "",
    engine: ENGINE = "in-process",
    meanings: MEANINGS_FILE = MEANINGS,
    as_json: AS_JSON = False,
) -> None:
    """List the test cases of families, without running them."""
    chosen = tuple(select_families(parsers, ""))
    selection = Selection(chosen, select_groups(groups), engine, meanings=meanings)
    case_sets = selection.case_sets()
    if as_json:
        records = (case_record(cases, case) for cases in case_sets for case in cases.cases)
        print(json.dumps(list(records), indent=2, ensure_ascii=False))
        return
    rows = [
        (cases.family.name, cases.group, str(case.topic), case.name)
        for cases in case_sets
        for case in cases.cases
    ]
    show_table(console, ("family", "group", "topic", "case"), rows)
    console.print(f"{len(rows)} cases; {sum(len(cases.left_out) for cases in case_sets)} are left out")


def compare_regressions(before: str, after: str) -> bool:
    """Prints the cases that regressed and the cases that are fixed, and says whether any regressed."""
    return bool(show_changes(console, compare.changes(_cells_of(before), _cells_of(after)), before))


def _cells_of(name: str) -> list[Cell]:
    """The cells of a run, as NAME or NAME@ENVIRONMENT."""
    run, _, spec = name.partition("@")
    cells = list(RegressionRun.named(run).cells())
    wanted = spec or cells[0].environment
    chosen = [cell for cell in cells if cell.environment == wanted]
    if not spec and len(chosen) != len(cells):
        environments = ", ".join(sorted({cell.environment for cell in cells}))
        raise UsageError(
            f"run {run} has several environments: {environments}", hint=f"name one: {run}@{wanted}"
        )
    return chosen


@app.command()
def engines(run: Annotated[str, typer.Argument(help="A run with cells of both engines.")]) -> None:
    """List where answers of servers over HTTP differ from those in process; exit 1 where any does."""
    compared, differences = compare.engine_differences(RegressionRun.named(run).cells())
    show_engine_differences(console, differences)
    console.print(f"{compared} answers compared, {len(differences)} differ")
    raise typer.Exit(1 if differences else 0)


@app.command()
def defects(
    run: Annotated[str, typer.Argument(help="A run, by name or folder.")],
    every: Annotated[
        bool,
        typer.Option(
            "--all", help="List the defects that do not show too, and every failure without a defect."
        ),
    ] = False,
    commands: Annotated[
        bool,
        typer.Option(
            "--commands", help="Print the families of each defect, and the command that shows it again."
        ),
    ] = False,
    folder: FOLDER = None,
) -> None:
    """Sort a run's failures by known defect; exit 1 where one has none."""
    known = parser_defects(load_defects(folder))
    explained = explain(known, RegressionRun.named(run).cells())
    show_explained(console, known, explained, every=every, commands=commands)
    raise typer.Exit(1 if explained.unexplained else 0)
