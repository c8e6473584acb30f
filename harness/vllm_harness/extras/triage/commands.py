"""`vllm-harness repro new` and `repro table`: drafts of entries, and which version has which defect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vllm_harness._defects.registry import load_defects
from vllm_harness._defects.repro.run import REPRO, MeasuredRun
from vllm_harness._errors import UsageError
from vllm_harness._files.paths import run_folder, state_dir
from vllm_harness._terminal.tables import plain_console, show_table
from vllm_harness.extras.triage.draft import as_yaml, from_capture, from_cell, from_test
from vllm_harness.extras.triage.table import LETTERS, Table, contradicted, specifier, write_versions


def table(
    runs: Annotated[list[str], typer.Argument(help="The names of runs of `repro`, or their folders.")],
    write: bool = False,
) -> None:
    """Show which version has which defect, according to runs; exit 1 if an entry disagrees.

    --write updates the table of verdicts and the entries.
    """
    defects = load_defects()
    measured = [each for run in runs for each in MeasuredRun(run_folder(REPRO, run)).verdicts().values()]
    merged = Table.of(each for each in measured if each.id in defects)
    if not merged.verdicts:
        raise UsageError(f"no verdicts in {', '.join(runs)}", hint=f"runs are in {state_dir() / REPRO}")
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
