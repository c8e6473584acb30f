"""`vllm-harness parity`: Python's front end against Rust's, and which of them is right."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Annotated

import typer

from vllm_harness.cli.regression_cells import whole_cells
from vllm_harness.cli.regression_options import AS_JSON, ONLY, PARALLEL, PARSERS, RUN_NAME, console, notes
from vllm_harness.cli.regression_table import show_parity
from vllm_harness.defects.registry import load_defects
from vllm_harness.errors import UsageError
from vllm_harness.regression.cases.case import GROUPS, CaseSet
from vllm_harness.regression.cases.delivery import Api
from vllm_harness.regression.results.cells import RegressionRun
from vllm_harness.regression.results.explained import parser_defects
from vllm_harness.regression.results.parity import parity
from vllm_harness.regression.selection import (
    Selection,
    select_environments,
    select_families,
    select_groups,
    split_names,
)
from vllm_harness.server.leases.allocation import interpreters


def parity_(
    vllm: Annotated[str, typer.Option(help="An environment that carries both.")] = "0.33.0@0.32.0",
    parsers: PARSERS = "",
    groups: Annotated[
        str, typer.Option("--cases", help=f"Groups of cases, by commas: {', '.join(GROUPS)}.")
    ] = "canonical",
    only: ONLY = None,
    parallel: PARALLEL = None,
    run: RUN_NAME = "",
    as_json: AS_JSON = False,
) -> None:
    """Send the same cases to Python's front end and to Rust's, and judge each difference.

    Chat Completions only: Rust's front end has no Responses. Exit 1 where both
    are wrong, each in its way, and no known defect says why.
    """
    if len(split_names(vllm)) != 1:
        raise UsageError("parity compares two front ends of one vLLM", hint="give one environment to --vllm")
    sides = select_environments(vllm, "python,rust", "http", notes.print)
    families = tuple(select_families(parsers, "", "http"))
    selection = Selection(families, select_groups(groups), "http", tuple(only or ()))
    case_sets = [_over_chat(cases) for cases in selection.case_sets() if cases.cases]
    folder = RegressionRun.named(run or time.strftime("%Y%m%d-%H%M%S"))
    python, rust = (
        whole_cells(
            folder,
            side,
            case_sets,
            f"cells of {side.frontend}",
            engine="http",
            parallel=parallel or interpreters(),
        )
        for side in sides
    )
    found = parity(parser_defects(load_defects()), python, rust)
    if as_json:
        print(json.dumps({"vllm": vllm, **found.model_dump(mode="json")}, indent=2, ensure_ascii=False))
    else:
        show_parity(console, found)
        console.print(f"run: {folder.folder}")
    raise typer.Exit(0 if all(each.judged for each in found.classes) else 1)


def _over_chat(cases: CaseSet) -> CaseSet:
    """The cases in the deliveries that both front ends have."""
    chosen = []
    for case in cases.cases:
        kept = tuple(each for each in case.input.deliveries if each.api is Api.CHAT)
        chosen.append(replace(case, input=case.input.model_copy(update={"deliveries": kept})))
    return replace(cases, cases=tuple(chosen))
