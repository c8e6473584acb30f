"""The parts of a review that run test cases of parser families: in process, and over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from vllm_harness._defects.registry import load_defects
from vllm_harness._regression.cases.case import Group
from vllm_harness._regression.results.cells import Cell
from vllm_harness._regression.results.compare import changes
from vllm_harness._regression.results.known_defects import parser_defects
from vllm_harness._regression.selection import Selection
from vllm_harness._scripted.families import Family
from vllm_harness.extras.review.both_sides import BothSides, HeadFailed, Side
from vllm_harness.extras.review.cells import whole_cells
from vllm_harness.extras.review.defect_changes import changed_defects
from vllm_harness.extras.review.over_http import covering, not_started, requested_again, wrong_cases
from vllm_harness.extras.review.second_try import tried_again
from vllm_harness.extras.review.verdict import DefectTurn, Named, ShownFailure

MOST_SERVED = 8
"""The number of servers to start over HTTP; families with the same parsers share a server."""
SERVED_GROUPS: tuple[Group, ...] = ("canonical", "chunks")


@dataclass(frozen=True)
class PartResult:
    """What a part found.

    Attributes:
        name: the name of the part.
        judged, fixed: the numbers of cases that ran before and after the change, and that became right.
        failures: the cases that regressed, and did so again by themselves.
        flaky: the cases that passed when they ran by themselves.
        otherwise: the cases that are wrong as before, with other answers.
        defects: the known defects whose failures changed.
        not_run, not_judged: what did not run or could not be judged.
        cells: the cells after the change.
        seconds: the duration.
    """

    name: str
    judged: int = 0
    fixed: int = 0
    failures: tuple[ShownFailure, ...] = ()
    flaky: tuple[str, ...] = ()
    otherwise: tuple[str, ...] = ()
    defects: tuple[DefectTurn, ...] = ()
    not_run: tuple[Named, ...] = ()
    not_judged: tuple[Named, ...] = ()
    cells: tuple[Cell, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class ParserPart:
    """Runs the cases of families before and after a change.

    Attributes:
        base, head: the code before and after the change.
        parallel: the number of interpreters or servers at a time.
        until_red: whether to stop at the first regression.
        say: receives a line at the first regression.
        started: when the review began, by `time.monotonic`.
    """

    base: Side
    head: Side
    parallel: int
    until_red: bool
    say: Callable[[str], None]
    started: float

    def over_http(self, families: Sequence[Family], red: Collection[str]) -> PartResult:
        """Serves some families, which together have every parser.

        The code before the change runs only the cases that are wrong after it without a known defect.

        Args:
            families: the families to choose from.
            red: those that regressed in process; if there are any, no others run.
        """
        started = time.monotonic()
        chosen = covering([family for family in families if not red or family.name in red])
        selection = Selection(tuple(chosen[:MOST_SERVED]), SERVED_GROUPS, "http")
        case_sets = [cases for cases in selection.case_sets() if cases.cases]
        run, head, base, title = self.head.run, self.head.vllm, self.base.vllm, "cells of parsers over HTTP"
        after = whole_cells(run, head, case_sets, title, engine="http", parallel=self.parallel)
        wrong = list(wrong_cases(case_sets, after, base.environment.vllm_version))
        before = whole_cells(run, base, wrong, f"{title}, before", engine="http", parallel=self.parallel)
        regressed = [change for change in changes(before, after) if change.regressed]
        tried = requested_again(regressed, case_sets, head)
        left_out = ", ".join(family.name for family in chosen[MOST_SERVED:])
        reason = f"only {MOST_SERVED} servers start; their parsers ran in process"
        return PartResult(
            "parsers over HTTP",
            judged=_cases_in_both(after, after),
            failures=tried.failures,
            flaky=tried.flaky,
            not_run=(Named(what=f"over HTTP: {left_out}", reason=reason),) if left_out else (),
            not_judged=tuple(_not_made(before, after)),
            cells=tuple(after),
            seconds=time.monotonic() - started,
        )

    def in_process(self, selection: Selection) -> PartResult:
        """Runs the families in process."""
        name, case_sets = "parsers in process", [cases for cases in selection.case_sets() if cases.cases]
        started = time.monotonic()
        sides = BothSides(self.base, self.head, self.parallel, self.until_red, self.say)
        try:
            changed = sides.run(case_sets, f"cells of {name}", lambda: time.monotonic() - self.started)
            regressed = [change for change in changed if change.regressed]
            tried = tried_again(regressed, case_sets, self.head.vllm)
        except HeadFailed as error:
            failure = not_started(error.message, case_sets[0].family.name)
            return PartResult(name, 1, failures=(failure,), seconds=time.monotonic() - started)
        before, after = sides.cells(case_sets)
        return PartResult(
            name,
            judged=_cases_in_both(before, after),
            fixed=len(changed) - len(regressed),
            failures=tried.failures,
            flaky=tried.flaky,
            otherwise=tuple(_otherwise(before, after)),
            defects=tuple(_turns(before, after)),
            not_judged=tuple(_not_made(before, after)),
            cells=tuple(after),
            seconds=time.monotonic() - started,
        )


def _cases_in_both(before: Sequence[Cell], after: Sequence[Cell]) -> int:
    ran = [{name for name, case in cell.cases.items() if case.is_judged} for cell in (*before, *after)]
    return sum(len(old & new) for old, new in zip(ran[: len(before)], ran[len(before) :], strict=True))


def _otherwise(before: Sequence[Cell], after: Sequence[Cell]) -> Iterator[str]:
    """The cases with the same mismatches before and after the change, but with other answers."""
    for old, new in zip(before, after, strict=True):
        for name in old.cases.keys() & new.cases.keys():
            one, other = old.cases[name], new.cases[name]
            same = (one.examples, one.digests) == (other.examples, other.digests)
            if one.mismatches == other.mismatches and not same:
                yield f"{new.family}, {new.group}, {name}"


def _turns(before: Sequence[Cell], after: Sequence[Cell]) -> list[DefectTurn]:
    turned = changed_defects(parser_defects(load_defects()), before, after)
    return [
        DefectTurn(
            id=row.defect.id,
            title=row.defect.defect.title,
            turn=row.change.value,
            families=row.families,
            before=row.before,
            gone=row.gone,
            new=row.new,
        )
        for row in turned
        if row.defect
    ]


def _not_made(before: Sequence[Cell], after: Sequence[Cell]) -> list[Named]:
    """The families whose parsers or servers start neither before nor after the change."""
    failed = {cell.family for cell in before if cell.start_error}
    errors = {
        cell.family: cell.start_error.partition("\n")[0]
        for cell in after
        if cell.start_error and cell.family in failed
    }
    return [Named(what=family, reason=reason) for family, reason in errors.items()]
