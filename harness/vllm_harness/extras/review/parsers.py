"""The parts of a review that run test cases of parser families: in process, and over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from vllm_harness._defects.registry import load_defects
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._regression.cases.case import CaseSet, Group
from vllm_harness._regression.engines.over_http import request_all, served_by
from vllm_harness._regression.engines.plan import Engine
from vllm_harness._regression.results.cells import CaseVerdict, Cell
from vllm_harness._regression.results.compare import CaseChange
from vllm_harness._regression.results.known_defects import parser_defects
from vllm_harness._regression.selection import Selection
from vllm_harness._scripted.families import Family, entry_of
from vllm_harness.extras.review.both_sides import BothSides, HeadFailed, Side
from vllm_harness.extras.review.defect_changes import changed_defects
from vllm_harness.extras.review.second_try import SecondTry, failure_of, tried_again
from vllm_harness.extras.review.verdict import DefectTurn, Failure, Message, Named

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
        defects: the known defects whose failures changed.
        not_run, not_judged: what did not run or could not be judged.
        cells: the cells after the change.
        seconds: the duration.
    """

    name: str
    judged: int = 0
    fixed: int = 0
    failures: tuple[Failure, ...] = ()
    flaky: tuple[str, ...] = ()
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

    def in_process(self, selection: Selection) -> PartResult:
        """Runs the families in process."""
        case_sets = [cases for cases in selection.case_sets() if cases.cases]
        return self._run("parsers in process", "in-process", case_sets)

    def over_http(self, families: Collection[Family], red: Collection[str]) -> PartResult:
        """Runs one family for each pair of parsers over HTTP: those that regressed in process, if any did."""
        chosen = _one_for_each_parser([family for family in families if not red or family.name in red])
        selection = Selection(tuple(chosen[:MOST_SERVED]), SERVED_GROUPS, "http")
        case_sets = [cases for cases in selection.case_sets() if cases.cases]
        result = self._run("parsers over HTTP", "http", case_sets)
        if len(chosen) <= MOST_SERVED:
            return result
        names = ", ".join(family.name for family in chosen[MOST_SERVED:])
        reason = f"only {MOST_SERVED} servers start; their parsers ran in process"
        return replace(result, not_run=(Named(what=f"over HTTP: {names}", reason=reason),))

    def _run(self, name: str, engine: Engine, case_sets: Sequence[CaseSet]) -> PartResult:
        started = time.monotonic()
        sides = BothSides(self.base, self.head, engine, self.parallel, self.until_red, self.say)
        try:
            changed = sides.run(case_sets, f"cells of {name}", lambda: time.monotonic() - self.started)
            regressed = [change for change in changed if change.regressed]
            tried = again_by(engine)(regressed, case_sets, self.head.vllm)
        except HeadFailed as error:
            failure = _not_started(error.message, case_sets[0].family.name, engine)
            return PartResult(name, 1, failures=(failure,), seconds=time.monotonic() - started)
        before, after = sides.cells(case_sets)
        return PartResult(
            name,
            judged=_cases_in_both(before, after),
            fixed=len(changed) - len(regressed),
            failures=tried.failures,
            flaky=tried.flaky,
            defects=tuple(_turns(before, after)),
            not_judged=tuple(_not_made(before, after)),
            cells=tuple(after),
            seconds=time.monotonic() - started,
        )


Again = Callable[[Sequence[CaseChange], Sequence[CaseSet], VllmUnderTest], SecondTry]


def again_by(engine: Engine) -> Again:
    """The function that runs regressed cases again by an engine."""
    return tried_again if engine == "in-process" else _requested_again


def _one_for_each_parser(families: Sequence[Family]) -> list[Family]:
    return list(
        {(family.tool_parser, family.reasoning_parser): family for family in reversed(families)}.values()
    )[::-1]


def _cases_in_both(before: Sequence[Cell], after: Sequence[Cell]) -> int:
    ran = [
        {name for name, case in cell.cases.items() if case.verdict is not CaseVerdict.LEFT_OUT}
        for cell in (*before, *after)
    ]
    return sum(len(old & new) for old, new in zip(ran[: len(before)], ran[len(before) :], strict=True))


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
    errors = {
        new.family: new.start_error.partition("\n")[0]
        for old, new in zip(before, after, strict=True)
        if old.start_error and new.start_error
    }
    return [Named(what=family, reason=reason) for family, reason in errors.items()]


def _not_started(message: str, family: str, engine: Engine) -> Failure:
    return Failure(
        family=family,
        group="all",
        case="the parsers run" if engine == "in-process" else "the server starts",
        delivery="",
        mismatch="parsers_not_made",
        title="vLLM does not run after the change, and did before",
        severity="error",
        actual=Message(error=message),
    )


def _requested_again(
    changed: Sequence[CaseChange], case_sets: Sequence[CaseSet], head: VllmUnderTest
) -> SecondTry:
    """Requests regressed cases again from a new server, one family after the other."""
    by_case = {(change.family, change.group, change.case): change for change in changed}
    failures: list[Failure] = []
    flaky: list[str] = []
    for cases in case_sets:
        place = (cases.family.name, cases.group)
        chosen = replace(cases, cases=tuple(case for case in cases.cases if (*place, case.name) in by_case))
        if not chosen.cases:
            continue
        with served_by(entry_of(cases.family), lane="scripted", vllm=head.environment) as server:
            answers = request_all(server, cases.family, chosen.inputs)
        for case in chosen.cases:
            own = [answer for answer in answers if answer.case == case.name]
            known = by_case[(*place, case.name)].before
            again = failure_of(chosen, case, own, known, head.spec, "http")
            failures += [again] if again else []
            flaky += [] if again else [f"{cases.family.name}, {cases.group} over HTTP, {case.name}"]
    return SecondTry(tuple(failures), tuple(flaky))
