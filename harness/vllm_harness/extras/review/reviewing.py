"""Reviews a change to vLLM: finds what it can affect, runs the parts, and makes the verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import get_args

from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import InfrastructureError, UsageError
from vllm_harness._regression.cases.case import Group
from vllm_harness._regression.results.cells import RegressionRun
from vllm_harness._regression.selection import Selection, select_families, select_groups
from vllm_harness._scripted.families import Family
from vllm_harness.cli.regression_options import GROUPS_OF_A_CHANGE
from vllm_harness.extras.review.accepted import AcceptedRegression, divided
from vllm_harness.extras.review.both_sides import Side
from vllm_harness.extras.review.change import Change, few
from vllm_harness.extras.review.grouping import causes_of
from vllm_harness.extras.review.parsers import ParserPart, PartResult
from vllm_harness.extras.review.scope import GitDifference, Scope, git_difference, scope_of
from vllm_harness.extras.review.tests_part import run_tests
from vllm_harness.extras.review.unchanged import cells_before
from vllm_harness.extras.review.verdict import (
    Named,
    Part,
    PartName,
    Review,
    ReviewVerdict,
    ShownFailure,
    verdict_of,
)

_SERVED = ("hermes", "openai")
"""The families that are served over HTTP if a change affects an API, but no parser."""


@dataclass(frozen=True)
class ReviewRequest:
    """What to review, and how.

    Attributes:
        head: the spec of the code after the change.
        base: a revision of the tree, or the spec of other code; empty for the default of `unchanged`.
        folder: the folder of the results.
        parts: the parts to run.
        parsers: comma-separated names of families or parsers; empty for all.
        cases: comma-separated names of groups; empty for all that can show a change.
        accepted: the regressions that are accepted.
        parallel: the number of interpreters or servers at a time.
        until_red: whether to stop at the first regression.
    """

    head: str
    base: str
    folder: Path
    parts: tuple[PartName, ...]
    parsers: str
    cases: str
    accepted: Sequence[AcceptedRegression]
    parallel: int
    until_red: bool

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups to run in process."""
        return select_groups(self.cases or GROUPS_OF_A_CHANGE)


def review_change(request: ReviewRequest, say: Callable[[str], None]) -> tuple[Review, list[PartResult]]:
    """Reviews a change; returns the review, and the results of its parts.

    Raises:
        UsageError: the head or the base is wrong.
        HarnessError: the review cannot go on.
    """
    started = time.monotonic()
    families = select_families(request.parsers, "")
    difference = git_difference(request.head, request.base)
    if difference is not None and (nothing := _nothing_in_git(request, difference, families, started)):
        return nothing, []
    change = Change.of(request.head, request.base, say)
    if change.spec == change.before.spec:
        raise UsageError(f"{change.spec} is both the head and the base", hint="name other code with --base")
    scope = scope_of(change.package, families, change.files)
    say(_announced(change, scope))
    results = _run(request, change, scope, say, started) if change.files else []
    return _review(request, change, scope, difference, results, started), results


def not_judged(request: ReviewRequest, reason: str) -> Review:
    """The verdict on a change that could not be judged at all."""
    return Review(
        verdict=ReviewVerdict.NOT_JUDGED,
        exit_code=InfrastructureError.exit_code,
        base=request.base or "HEAD",
        head=request.head,
        not_judged=(Named(what="the change", reason=reason),),
        run=str(request.folder),
    )


def _nothing_in_git(
    request: ReviewRequest, difference: GitDifference, families: Sequence[Family], started: float
) -> Review | None:
    """The verdict on a change that no test can judge, which needs no environment; None for other changes."""
    scope = scope_of(difference.package, families if difference.code else (), difference.code)
    if scope.families or scope.apis:
        return None
    return Review(
        verdict=ReviewVerdict.NOTHING,
        exit_code=0,
        base=f"revision {difference.commit[:9]}",
        head=request.head,
        files=difference.code,
        other_files=len(difference.others),
        not_run=(*scope.not_run, *difference.not_run),
        seconds=time.monotonic() - started,
    )


def _announced(change: Change, scope: Scope) -> str:
    touched = [f"parsers of {few((family.name for family in scope.families), 6)}"] if scope.families else []
    touched += [f"the API {api.name}" for api in scope.apis]
    return f"{change}; this can affect {few(touched) if touched else 'nothing that the harness runs'}"


def _run(
    request: ReviewRequest, change: Change, scope: Scope, say: Callable[[str], None], started: float
) -> list[PartResult]:
    head = Side(VllmUnderTest(change.spec, change.environment), RegressionRun(request.folder))
    base = Side(change.before.vllm(say), cells_before())
    part = ParserPart(base, head, request.parallel, request.until_red, say, started)
    results: list[PartResult] = []
    for name in get_args(PartName):
        red = {failure.family for result in results for failure in result.failures}
        if request.until_red and red:
            named = Named(what="further cases and parts", reason="the first regression ended the review")
            results.append(PartResult("", not_run=(named,)))
            break
        if name in request.parts and (result := _part(name, request, part, change, scope, red)):
            results.append(result)
    return results


def _part(
    name: PartName, request: ReviewRequest, part: ParserPart, change: Change, scope: Scope, red: set[str]
) -> PartResult | None:
    if name == "tests":
        return run_tests(change, scope, request.folder, part.say) if scope.apis else None
    if name == "in-process":
        if not scope.families:
            return None
        return part.in_process(Selection(scope.families, request.groups, "in-process"))
    families = list(scope.families) or [each for each in select_families("", "") if each.name in _SERVED]
    return part.over_http(families, red)


def _review(
    request: ReviewRequest,
    change: Change,
    scope: Scope,
    difference: GitDifference | None,
    results: Sequence[PartResult],
    started: float,
) -> Review:
    failures: list[ShownFailure] = []
    accepted: list[Named] = []
    parts: list[Part] = []
    for result in results:
        counting, living = divided(result.failures, request.accepted, date.today())
        failures, accepted = [*failures, *counting], [*accepted, *living]
        parts += [_counted(result, len(counting), len(living))] if result.name else []
    not_judged = tuple(each for result in results for each in result.not_judged)
    verdict, code = verdict_of(tuple(parts), not_judged)
    nothing = not parts and not not_judged
    return Review(
        verdict=ReviewVerdict.NOTHING if nothing else verdict,
        exit_code=code,
        base=change.before.title,
        head=change.environment.describe(),
        files=change.files,
        other_files=len(difference.others) if difference else 0,
        parts=tuple(parts),
        causes=causes_of(failures, scope.files_of),
        defects=tuple({turn.id: turn for result in results for turn in reversed(result.defects)}.values()),
        accepted=tuple(accepted),
        not_run=(
            *scope.not_run,
            *(difference.not_run if difference else ()),
            *(each for result in results for each in result.not_run),
            *(Named(what=name, reason="--parts leaves it out") for name in _left_out(request, scope)),
        ),
        not_judged=not_judged,
        seconds=time.monotonic() - started,
        run=str(request.folder),
    )


def _left_out(request: ReviewRequest, scope: Scope) -> list[PartName]:
    """The parts that the change can affect, and that were not asked for."""
    affected = {"in-process": scope.families, "http": scope.families or scope.apis, "tests": scope.apis}
    return [name for name in get_args(PartName) if affected[name] and name not in request.parts]


def _counted(result: PartResult, regressed: int, accepted: int) -> Part:
    return Part(
        name=result.name,
        judged=result.judged,
        fixed=result.fixed,
        regressed=regressed,
        accepted=accepted,
        flaky=result.flaky,
        otherwise=tuple(sorted(result.otherwise)),
        seconds=round(result.seconds, 1),
    )
