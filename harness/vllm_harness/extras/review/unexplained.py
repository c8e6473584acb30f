"""Shows the failures of a regression run that no known defect explains, with their text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._regression.results.cells import Cell
from vllm_harness._regression.results.compare import CaseChange
from vllm_harness._regression.results.known_defects import ParserDefect, explaining_ids, failure_in
from vllm_harness._regression.selection import Selection
from vllm_harness.extras.review.failure_text import kind_lines
from vllm_harness.extras.review.grouping import causes_of
from vllm_harness.extras.review.over_http import requested_again
from vllm_harness.extras.review.second_try import tried_again

MOST_CASES, MOST_KINDS = 60, 6


def show_unexplained(
    console: Console,
    environments: Sequence[VllmUnderTest],
    selection: Selection,
    cells: Sequence[Cell],
    known: Mapping[str, Sequence[ParserDefect]],
) -> None:
    """Runs unexplained failures of the first environment that has some again, and prints each kind once."""
    for vllm in environments:
        changes = [
            change
            for cell in cells
            if cell.environment == vllm.name and cell.group not in ("cost", "load")
            for change in _unexplained(cell, known)
        ][:MOST_CASES]
        if not changes:
            continue
        case_sets = [cases for cases in selection.case_sets() if cases.cases]
        again = tried_again if selection.engine == "in-process" else requested_again
        tried = again(changes, case_sets, vllm)
        kinds = [kind for cause in causes_of(tried.failures, lambda _: ()) for kind in cause.kinds]
        for number, kind in enumerate(kinds[:MOST_KINDS], start=1):
            console.print("\n".join(["", *kind_lines(number, kind)]))
        return


def _unexplained(cell: Cell, known: Mapping[str, Sequence[ParserDefect]]) -> list[CaseChange]:
    """The failures of a cell that no known defect explains, as changes from those that one does."""
    changes = []
    for name, case in cell.cases.items():
        explained = {
            delivery: tuple(
                mismatch
                for mismatch in mismatches
                if explaining_ids(
                    failure := failure_in(cell, name, delivery, mismatch), known.get(failure.plain_family, ())
                )
            )
            for delivery, mismatches in case.mismatches.items()
        }
        if explained != case.mismatches:
            changes.append(CaseChange(cell.family, cell.group, name, explained, case.mismatches))
    return changes
