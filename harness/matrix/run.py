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
class Asked:
    """What a family is asked.

    Attributes:
        family: who says it.
        cases: what it says.
        left_out: why it cannot say the others, by the case's name.
        digest: of all that decides the result but vLLM.
    """

    family: Family
    cases: list[Case]
    left_out: dict[str, str]
    digest: str

    @classmethod
    def of(cls, family: Family, meanings: Meanings, groups: tuple[Group, ...]) -> Asked:
        """The cases of these groups, in the family's words."""
        cases, left_out = sayable(family, meanings, groups)
        return cls(family, cases, left_out, digest(cases, WAYS))


@dataclass(frozen=True)
class Job:
    """Families to parse in one interpreter: the environment as in `--vllm`, the same resolved, the cases."""

    spec: str
    environment: Environment
    asked: tuple[Asked, ...]


def jobs(
    run: Run,
    environments: Sequence[tuple[str, Environment]],
    families: Sequence[Family],
    meanings: Meanings,
    groups: tuple[Group, ...] = GROUPS,
) -> list[Job]:
    """What there is to do: every family on every environment, but for the cells that have finished."""
    everything = [Asked.of(family, meanings, groups) for family in families]
    todo = []
    for spec, environment in environments:
        left = [one for one in everything if not run.finished(spec, one.family.name, one.digest)]
        todo += [
            Job(spec, environment, tuple(left[start : start + BATCH])) for start in range(0, len(left), BATCH)
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
    parsed = parse_in_process(job.environment, [(one.family, one.cases) for one in job.asked], ways=WAYS)
    return [
        _cell(job, one, [result for result in parsed if result.family == one.family.name], meanings)
        for one in job.asked
    ]


def _cell(job: Job, asked: Asked, parsed: Sequence[Parsed], meanings: Meanings) -> Cell:
    family = asked.family
    refused = next((one.error for one in parsed if one.case is None), None)
    return Cell(
        environment=job.spec,
        described=job.environment.describe(),
        family=family.name,
        tool_parser=family.tool_parser,
        reasoning_parser=family.reasoning_parser,
        tokenizer="real" if family.tokenizer else "synthetic",
        engine="in process",
        asked=asked.digest,
        refused=refused,
        cases=dict(_results(asked, parsed, meanings)) if refused is None else {},
    )


def _results(asked: Asked, parsed: Sequence[Parsed], meanings: Meanings) -> Iterator[tuple[str, CaseResult]]:
    texts = {case.name: case.text for case in asked.cases}
    for case in meanings.cases:
        if case.name in asked.left_out:
            yield case.name, CaseResult(group=case.group, left_out=asked.left_out[case.name])
        elif case.name in texts:
            found = {
                one.way: differences(case.meaning, one) for one in parsed if one.case == case.name and one.way
            }
            wrong = {way: kinds for way, kinds in found.items() if kinds}
            yield case.name, CaseResult(group=case.group, text=texts[case.name], wrong=wrong, ways=len(found))
