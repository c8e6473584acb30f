"""`vllm-harness regression parity`: Python's front end against Rust's, and which of them is right."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from vllm_harness._defects.registry import load_defects
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import UsageError
from vllm_harness._regression.cases.case import GROUPS, CaseSet
from vllm_harness._regression.cases.delivery import Api
from vllm_harness._regression.results.cells import RegressionRun
from vllm_harness._regression.results.known_defects import WITH_RUST, parser_defects
from vllm_harness._regression.selection import (
    Selection,
    select_environments,
    select_families,
    select_groups,
    split_names,
)
from vllm_harness._scripted.families import Family, entry_of
from vllm_harness._server.leases.allocation import interpreters
from vllm_harness._server.model_check import names_of, unknown_names
from vllm_harness.cli.options import AS_JSON, JOBS, VLLM_HELP
from vllm_harness.cli.regression_cells import whole_cells
from vllm_harness.cli.regression_options import ONLY, PARSERS, RUN_NAME, console, notes
from vllm_harness.extras.parity.judging import parity
from vllm_harness.extras.parity.table import show_parity


def parity_(
    vllm: Annotated[str, typer.Option(help=VLLM_HELP)] = WITH_RUST,
    parsers: PARSERS = "",
    groups: Annotated[
        str, typer.Option("--cases", help=f"Groups of cases, separated by commas: {', '.join(GROUPS)}.")
    ] = "canonical",
    only: ONLY = None,
    jobs: JOBS = None,
    run: RUN_NAME = "",
    as_json: AS_JSON = False,
) -> None:
    """Send the same cases to Python's front end and to Rust's, and judge each difference.

    Chat Completions only: Rust's front end has no Responses. Exit 1 where an
    answer is wrong and no known defect of its front end says why.
    """
    if len(split_names(vllm)) != 1:
        raise UsageError("parity compares two front ends of one vLLM", hint="give one environment to --vllm")
    sides = select_environments(vllm, "python,rust", "http", notes.print)
    named = select_families(parsers, "")
    lacking = {name: reason for side in sides for name, reason in _lacking(side, named).items()}
    families = tuple(family for family in named if family.name not in lacking)
    selection = Selection(families, select_groups(groups), "http", tuple(only or ()))
    case_sets = [_over_chat(cases) for cases in selection.case_sets() if cases.cases]
    folder = RegressionRun.named(run or time.strftime("%Y%m%d-%H%M%S"))
    at_a_time = jobs or interpreters()
    python, rust = (
        whole_cells(folder, side, case_sets, f"cells of {side.frontend}", engine="http", parallel=at_a_time)
        for side in sides
    )
    found = parity(parser_defects(load_defects()), python, rust, lacking)
    if as_json:
        print(json.dumps({"vllm": vllm, **found.model_dump(mode="json")}, indent=2, ensure_ascii=False))
    else:
        show_parity(console, found)
        console.print(f"run: {folder.folder}")
    raise typer.Exit(1 if found.unjudged else 0)


def _lacking(vllm: VllmUnderTest, families: Sequence[Family]) -> dict[str, str]:
    """The families that a front end has no parser for, each with the reason."""
    names = names_of(vllm.environment, vllm.frontend)
    reason = f"the {vllm.frontend} front end has no such parser"
    return {
        family.name: reason
        for family in families
        for unknown in unknown_names([entry_of(family)], names, vllm.frontend)
        if unknown.key in ("tool_call_parser", "reasoning_parser")
    }


def _over_chat(cases: CaseSet) -> CaseSet:
    """The cases in the deliveries that both front ends have."""
    chosen = []
    for case in cases.cases:
        kept = tuple(each for each in case.input.deliveries if each.api is Api.CHAT)
        chosen.append(replace(case, input=case.input.model_copy(update={"deliveries": kept})))
    return replace(cases, cases=tuple(chosen))
