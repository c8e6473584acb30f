"""Runs the cells of a matrix that have not finished: families over environments, in process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from harness.environments.spec import Environment
from harness.errors import HarnessError
from harness.matrix.judge import differences
from harness.matrix.meanings import GROUPS, Group, Meanings, sayable
from harness.matrix.results import CaseResult, Cell, Run, digest
from harness.scripted.families import Family
from harness.scripted.in_process import Case, Parsed, parse_in_process

WAYS = ("whole", "1", "2", "3", "5", "7", "0", "1+end", "0+end")
"""Not streamed; so many tokens a delta (0: all in one); the same, the turn's end in the last."""
BATCH = 6
"""Families that one interpreter parses; what has finished is kept when a run is interrupted."""


@dataclass(frozen=True)
class Job:
    """Families to parse in one interpreter.

    Attributes:
        spec: the environment, as in `--vllm`.
        environment: the same, resolved.
        asked: each family with its cases, the reasons for those left out, and their digest.
    """

    spec: str
    environment: Environment
    asked: tuple[tuple[Family, list[Case], dict[str, str], str], ...]


def jobs(
    run: Run,
    environments: Sequence[tuple[str, Environment]],
    families: Sequence[Family],
    meanings: Meanings,
    groups: tuple[Group, ...] = GROUPS,
) -> list[Job]:
    """What there is to do: every family on every environment, but for the cells that have finished."""
    todo = []
    for spec, environment in environments:
        open_ = []
        for family in families:
            cases, left_out = sayable(family, meanings, groups)
            asked = digest(cases, WAYS)
            if not run.finished(spec, family.name, asked):
                open_.append((family, cases, left_out, asked))
        todo += [
            Job(spec, environment, tuple(open_[start : start + BATCH]))
            for start in range(0, len(open_), BATCH)
        ]
    return todo


def work(
    run: Run, todo: Iterable[Job], meanings: Meanings, *, parallel: int, done: Callable[[Cell], None]
) -> list[HarnessError]:
    """Does jobs side by side and keeps their cells; returns the errors of those that failed."""
    errors = []
    with ThreadPoolExecutor(parallel) as pool:
        for future in as_completed([pool.submit(_cells, job, meanings) for job in todo]):
            try:
                cells = future.result()
            except HarnessError as error:
                errors.append(error)
                continue
            for cell in cells:
                run.write(cell)
                done(cell)
    return errors


def _cells(job: Job, meanings: Meanings) -> list[Cell]:
    parsed = parse_in_process(
        job.environment, [(family, cases) for family, cases, _, _ in job.asked], ways=WAYS
    )
    return [
        _cell(
            job,
            family,
            cases,
            left_out,
            asked,
            [one for one in parsed if one.family == family.name],
            meanings,
        )
        for family, cases, left_out, asked in job.asked
    ]


def _cell(
    job: Job,
    family: Family,
    cases: Sequence[Case],
    left_out: dict[str, str],
    asked: str,
    parsed: Sequence[Parsed],
    meanings: Meanings,
) -> Cell:
    refused = next((one.error for one in parsed if one.case is None), None)
    texts = {case.name: case.text for case in cases}
    results = dict(_results(texts, left_out, parsed, meanings)) if refused is None else {}
    return Cell(
        environment=job.spec,
        described=job.environment.describe(),
        family=family.name,
        tool_parser=family.tool_parser,
        reasoning_parser=family.reasoning_parser,
        tokenizer="real" if family.tokenizer else "synthetic",
        engine="in process",
        asked=asked,
        refused=refused,
        cases=results,
    )


def _results(
    texts: dict[str, str], left_out: dict[str, str], parsed: Sequence[Parsed], meanings: Meanings
) -> Iterator[tuple[str, CaseResult]]:
    for case in meanings.cases:
        if case.name in left_out:
            yield case.name, CaseResult(group=case.group, left_out=left_out[case.name])
        elif case.name in texts:
            found = {
                one.way: differences(case.meaning, one) for one in parsed if one.case == case.name and one.way
            }
            wrong = {way: kinds for way, kinds in found.items() if kinds}
            yield case.name, CaseResult(group=case.group, text=texts[case.name], wrong=wrong, ways=len(found))
