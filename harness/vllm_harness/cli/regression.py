"""`vllm-harness regression`: tests the parsers of several versions of vLLM."""

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
from vllm_harness._regression.cases.meanings import FILE as MEANINGS
from vllm_harness._regression.engines.plan import Engine
from vllm_harness._regression.listing import case_record, family_record
from vllm_harness._regression.results import compare
from vllm_harness._regression.results.cells import CaseVerdict, Cell, RegressionRun, raise_if_not_judged
from vllm_harness._regression.results.known_defects import by_family, explain, parser_defects
from vllm_harness._regression.results.run_records import cases_of, target_of
from vllm_harness._regression.run import run_batches, unfinished
from vllm_harness._regression.selection import (
    Selection,
    select_environments,
    select_families,
    select_groups,
)
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.records import Kind
from vllm_harness._scripted.families import load_families
from vllm_harness._terminal.tables import show_table
from vllm_harness.cli.counting import counted
from vllm_harness.cli.executor import executor_of, keep_command, resume
from vllm_harness.cli.regression_options import RegressionOptions, console, notes
from vllm_harness.cli.regression_table import (
    DefectsByFamily,
    show_cells,
    show_changes,
    show_explained,
)
from vllm_harness.cli.run_folder import kept_run

app = typer.Typer()


@app.callback(invoke_without_command=True)
def regression(
    context: typer.Context,
    *,
    options: RegressionOptions,
    ray: str = "",
    bundle: list[Path] | None = None,
    resume_: str = "",
) -> None:
    """Run the cases of each family through vLLM's own parsers; exit 1 if a case fails.

    --cases defaults to the first five groups, --vllm accepts several versions,
    and --frontends and --apis need --engine http. --changed runs the families
    whose parsers import a file that a tree changes from the release or HEAD.
    """
    if context.invoked_subcommand:
        return
    if resume_:
        resume("regression", resume_, ray, context.find_root().command.main, bundles=bundle)
    if options.changed:
        raise typer.Exit(extensions.load(extensions.CHANGED_FAMILIES, "--changed")(options, ray))
    baseline = _baseline(options.baseline, options.engine)
    selection = options.selection()
    environments = select_environments(options.vllm, options.frontends, options.engine, notes.print)
    if options.write_baseline and len(environments) != 1:
        raise UsageError("--write-baseline needs exactly one environment", hint="give one to --vllm")
    if options.coverage:
        _show_coverage(environments[0], selection, options.parallel, ray)
        return
    folder = RegressionRun.named(options.run or time.strftime("%Y%m%d-%H%M%S"))
    defects = by_family(parser_defects(load_defects()))
    keep_command(folder.folder)
    with kept_run(Kind.REGRESSION, folder.folder, folder.folder.name, options.seed) as writer:
        specs = [vllm.spec for vllm in environments]
        with executor_of(ray, options.jobs, folder.folder, bundles=bundle, vllm=specs) as executor:
            cells, errors = _run(folder, environments, selection, executor, writer, defects)
        show_cells(console, cells, baseline, defects)
        if "cost" in selection.groups:
            extensions.load(extensions.COST_TABLE)(console, cells)
        if not (baseline or options.write_baseline) and extensions.installed("review"):
            extensions.load(extensions.FAILURES)(console, environments, selection, cells, defects)
        failures = []
        if not baseline and "properties" in selection.groups and selection.engine == "in-process":
            find = extensions.load(extensions.SMALLEST_FAILURES, "the group properties")
            failures = find(folder, environments, selection, options.parallel)
        console.print(f"run: {folder.folder}")
        if options.write_baseline:
            compare.write_baseline(compare.baseline_of(environments[0].name, cells), options.write_baseline)
            console.print(f"baseline: {options.write_baseline}")
        if errors:
            raise errors[0]
        raise_if_not_judged(cells)
        if baseline:
            raise typer.Exit(_compare(baseline, cells))
        failed = any(cell.start_error or cell.count(CaseVerdict.FAILED) for cell in cells)
        raise typer.Exit(1 if not options.write_baseline and (failures or failed) else 0)


def _show_coverage(vllm: VllmUnderTest, selection: Selection, parallel: int, ray: str) -> None:
    if ray:
        raise UsageError("--coverage cannot be combined with --ray", hint="leave --ray out")
    show_coverage = extensions.load(extensions.PARSER_COVERAGE, "--coverage")
    case_sets = [cases for cases in selection.case_sets() if cases.cases]
    show_coverage(vllm.environment, case_sets, parallel=parallel)


def _baseline(path: Path | None, engine: Engine) -> compare.Baseline | None:
    """Reads a baseline. Raises UsageError if it was recorded with the other engine."""
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
    """Runs the unfinished cells; returns all selected cells, and the errors that ended parts of the run."""
    case_sets = selection.case_sets()
    shares = executor.deal(len(case_sets), apart=selection.engine == "http")
    batches = unfinished(run, environments, case_sets, engine=selection.engine, parallel=shares)
    total = sum(len(batch.case_sets) for batch in batches)
    if finished := len(environments) * sum(bool(cases.cases) for cases in case_sets) - total:
        notes.print(f"{finished} cells of this run are already finished")
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


def _compare(known: compare.Baseline, cells: list[Cell]) -> int:
    if missing := sum(not known.covers_cell(cell) for cell in cells):
        console.print(f"{missing} cells are not in the baseline and were not compared")
    return show_changes(console, compare.against(known, cells), f"the baseline of vLLM {known.vllm}")


@app.command()
def families(json_: bool = False) -> None:
    """List the families with their parsers, dialects and formats."""
    records = [family_record(family) for family in load_families().values()]
    if json_:
        print(json.dumps(records, indent=2))
        return
    columns = ("name", "tool_parser", "reasoning_parser", "dialect", "source")
    rows = [tuple(record[column] or "-" for column in columns) for record in records]
    show_table(console, ("family", "tool parser", "reasoning parser", "dialect", "source"), rows)


@app.command()
def cases(
    parsers: str = "",
    cases: str = "",
    engine: Engine = "in-process",
    meanings: Path = MEANINGS,
    json_: bool = False,
) -> None:
    """List the test cases of families, without running them."""
    chosen = tuple(select_families(parsers, ""))
    selection = Selection(chosen, select_groups(cases), engine, meanings=meanings)
    case_sets = selection.case_sets()
    if json_:
        records = (case_record(each, case) for each in case_sets for case in each.cases)
        print(json.dumps(list(records), indent=2, ensure_ascii=False))
        return
    rows = [
        (each.family.name, each.group, str(case.topic), case.name)
        for each in case_sets
        for case in each.cases
    ]
    show_table(console, ("family", "group", "topic", "case"), rows)
    console.print(f"{len(rows)} cases; {sum(len(each.left_out) for each in case_sets)} are left out")


def compare_regressions(before: str, after: str) -> bool:
    """Prints the cases that regressed and those that are fixed, and returns whether any regressed."""
    return bool(show_changes(console, compare.changes(_cells_of(before), _cells_of(after)), before))


def _cells_of(name: str) -> list[Cell]:
    """The cells of a run that is given as NAME or NAME@ENVIRONMENT."""
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
def defects(
    run: Annotated[str, typer.Argument(help="A run, by name or folder.")],
    all_: bool = False,
    commands: bool = False,
    folder: Path | None = None,
) -> None:
    """Sort a run's failures by known defect; exit 1 if there are other failures."""
    known = parser_defects(load_defects(folder))
    explained = explain(known, RegressionRun.named(run).cells())
    show_explained(console, known, explained, every=all_, commands=commands)
    raise typer.Exit(1 if explained.unexplained else 0)
