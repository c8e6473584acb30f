"""`vllm-harness regression parity`: compares vLLM's Python and Rust front ends, and judges which is right."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import typer

from vllm_harness._defects.registry import load_defects
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import UsageError
from vllm_harness._exchange.delivery import Api
from vllm_harness._machine import interrupts
from vllm_harness._regression.cases.case import CaseSet
from vllm_harness._regression.results.cells import RegressionRun
from vllm_harness._regression.results.known_defects import parser_defects
from vllm_harness._regression.results.selections import WITH_RUST
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
from vllm_harness.cli.regression_options import console, notes
from vllm_harness.extras.parity.judging import parity
from vllm_harness.extras.parity.table import show_parity
from vllm_harness.extras.review.cells import whole_cells


def parity_(
    vllm: str = WITH_RUST,
    parsers: str = "",
    cases: str = "canonical",
    only: list[str] | None = None,
    jobs: int | None = None,
    run: str = "",
    json_: bool = False,
) -> None:
    """Compare vLLM's Python and Rust front ends on the same cases.

    Only Chat Completions are compared, since the Rust front end does not serve
    Responses. The exit code is 1 if an answer is wrong and no known defect of
    its front end explains it.
    """
    if len(split_names(vllm)) != 1:
        raise UsageError("parity compares the front ends of one vLLM", hint="give one environment to --vllm")
    sides = select_environments(vllm, "python,rust", "http", notes.print)
    selected = select_families(parsers, "")
    lacking = {name: reason for side in sides for name, reason in _lacking(side, selected).items()}
    families = tuple(family for family in selected if family.name not in lacking)
    selection = Selection(families, select_groups(cases), "http", tuple(only or ()))
    case_sets = [_over_chat(case_set) for case_set in selection.case_sets() if case_set.cases]
    folder = RegressionRun.named(run or time.strftime("%Y%m%d-%H%M%S"))
    interrupts.keep(folder.folder, *sys.argv[1:], f"--run={folder.folder}")
    at_a_time = jobs or interpreters()
    python, rust = (
        whole_cells(folder, side, case_sets, f"cells of {side.frontend}", engine="http", parallel=at_a_time)
        for side in sides
    )
    result = parity(parser_defects(load_defects()), python, rust, lacking)
    if json_:
        print(json.dumps({"vllm": vllm, **result.model_dump(mode="json")}, indent=2, ensure_ascii=False))
    else:
        show_parity(console, result)
        console.print(f"run: {folder.folder}")
    raise typer.Exit(1 if result.unjudged else 0)


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
    """The cases with only those deliveries that use Chat Completions, which both front ends serve."""
    over_chat = []
    for case in cases.cases:
        deliveries = tuple(delivery for delivery in case.input.deliveries if delivery.api is Api.CHAT)
        input_ = case.input.model_copy(update={"deliveries": deliveries})
        over_chat.append(replace(case, input=input_))
    return replace(cases, cases=tuple(over_chat))
