"""Prints the table of costs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from vllm_harness._regression.results.cells import Cell
from vllm_harness._terminal.tables import show_table
from vllm_harness.extras.costs.curves import MOST_EXPONENT, ORDINARY_TOKENS, family_costs
from vllm_harness.extras.costs.growing import BLOCKED_S


def show_costs(console: Console, cells: Sequence[Cell]) -> None:
    """Prints how the cost of each family's parsers grows with the answer, if any cost was measured."""
    rows = []
    for cost in family_costs(cells):
        steepest = (f"{curve[0]:.2f} {curve[1]}" if curve else "-" for curve in (cost.whole, cost.streamed))
        longest = (
            f"{1000 * cost.longest[0]:.0f} ms {cost.longest[2]}, {cost.longest[1]}" if cost.longest else "-"
        )
        parsers = (cost.tool_parser or "-", cost.reasoning_parser or "-")
        findings, curves = cost.findings
        rows.append((cost.family, *parsers, *steepest, longest, f"{findings}/{curves}"))
    if rows:
        headings = (
            "family",
            "tool parser",
            "reasoning parser",
            "whole",
            "streamed",
            "longest step",
            "findings",
        )
        show_table(console, headings, rows, headings[-1:])
        console.print(
            "whole, streamed: the CPU time grows with this power of an answer's size, in the steepest case; "
            f"findings: curves above {MOST_EXPONENT}, and those with a step of more than "
            f"{1000 * BLOCKED_S:.0f} ms at {ORDINARY_TOKENS} tokens or fewer"
        )
