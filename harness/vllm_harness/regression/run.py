"""Runs the cells of a matrix that have not finished: families and groups of cases over environments."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TypeVar

from vllm_harness.configuration.model_entries import Frontend
from vllm_harness.environments.spec import Environment
from vllm_harness.errors import HarnessError
from vllm_harness.regression.cases.meanings import Meanings
from vllm_harness.regression.cases.questions import Group, Question, Questions, Search, questions
from vllm_harness.regression.engines.in_process import Parsed, parsing
from vllm_harness.regression.engines.over_http import Answered, answers, under_load
from vllm_harness.regression.results.judge import (
    REFUSED,
    called,
    differences,
    disagreement,
    dropped,
    losses,
    misnamed,
    not_barred,
    refused,
    strangers,
    unsaid,
)
from vllm_harness.regression.results.results import CaseResult, Cell, Engine, Run, short_digest
from vllm_harness.scripted.families import Family
from vllm_harness.server.leases.claims import own_task

T = TypeVar("T")
LIMIT_S = 3600.0
SHOWN = 400
"""Characters of an answer that are kept as an example."""


@dataclass(frozen=True)
class Asked:
    """What a family is asked.

    Attributes:
        family: who says it.
        group: of the cases.
        questions: the cases.
        digest: of all that decides the result but vLLM.
    """

    family: Family
    group: Group
    questions: Questions
    digest: str

    @classmethod
    def of(
        cls,
        family: Family,
        group: Group,
        meanings: Meanings,
        engine: Engine,
        only: Sequence[str] = (),
        search: Search | None = None,
    ) -> Asked:
        """The cases of this group, in the family's words; `only` those of these names."""
        found = questions(group, family, meanings, engine, search)
        if only:
            chosen = tuple(one for one in found.asked if one.case.name in only)
            found = Questions(chosen, {name: why for name, why in found.left_out.items() if name in only})
        return cls(family, group, found, short_digest([one.told for one in found.asked]))


@dataclass(frozen=True)
class Subject:
    """A vLLM that is asked: the environment as in `--vllm`, and resolved, and the front end that answers."""

    spec: str
    environment: Environment
    frontend: Frontend = "python"

    @property
    def name(self) -> str:
        """What its cells are found by."""
        return self.spec if self.frontend == "python" else f"{self.spec}+{self.frontend}"

    @property
    def described(self) -> str:
        """The environment in full."""
        told = self.environment.describe()
        return told if self.frontend == "python" else f"{told}, {self.frontend} front end"


@dataclass(frozen=True)
class Job:
    """Cells for one interpreter or one row of servers."""

    subject: Subject
    engine: Engine
    asked: tuple[Asked, ...]


def jobs(
    run: Run,
    subjects: Sequence[Subject],
    everything: Sequence[Asked],
    *,
    engine: Engine = "in-process",
    parallel: int = 1,
) -> list[Job]:
    """What there is to do: everything on every subject, but for the cells that have finished."""
    todo = []
    for subject in subjects:
        left = [
            one
            for one in everything
            if one.questions.asked
            and not run.finished(subject.name, engine, one.family.name, one.group, one.digest)
        ]
        todo += [Job(subject, engine, tuple(share)) for share in shares(left, parallel)]
    return todo


def shares(things: Sequence[T], parallel: int) -> list[Sequence[T]]:
    """Things dealt out in turn to so many at a time, or to fewer where there are not enough."""
    return [share for start in range(parallel) if (share := things[start::parallel])]


def work(run: Run, todo: Iterable[Job], *, parallel: int, done: Callable[[Cell], None]) -> list[HarnessError]:
    """Does jobs side by side, keeps each cell as it finishes; returns the errors of those that failed."""

    def do(job: Job) -> None:
        with own_task(f"{id(job)}"):
            for cell in _cells(job):
                run.write(cell)
                done(cell)

    errors = []
    with ThreadPoolExecutor(parallel) as pool:
        for future in as_completed([pool.submit(do, job) for job in todo]):
            try:
                future.result()
            except HarnessError as error:
                errors.append(error)
    return errors


def _cells(job: Job) -> Iterator[Cell]:
    return _over_http(job) if job.engine == "http" else _in_process(job)


def _in_process(job: Job) -> Iterator[Cell]:
    asked = [(one.family, [question.case for question in one.questions.asked]) for one in job.asked]
    started = time.monotonic()
    for parsed in parsing(job.subject.environment, asked, limit_s=LIMIT_S):
        now = time.monotonic()
        yield _cell(job, job.asked[parsed[0].job], parsed, seconds=now - started)
        started = now


def _over_http(job: Job) -> Iterator[Cell]:
    for asked in job.asked:
        started = time.monotonic()
        alone: tuple[str, ...] = ()
        try:
            if asked.group == "load":
                parsed = _loaded(job, asked)
            else:
                answered = _answered(job, asked)
                parsed, alone = answered.parsed, answered.alone
        except HarnessError as error:
            parsed = [Parsed(family=asked.family.name, error=f"{type(error).__name__}: {error.message}")]
        yield _cell(job, asked, parsed, seconds=time.monotonic() - started, alone=alone)


def _answered(job: Job, asked: Asked) -> Answered:
    meanings = {question.case.name: question.meaning for question in asked.questions.asked}

    def wrong(answer: Parsed) -> bool:
        meaning = meanings[str(answer.case)]
        return meaning is not None and bool(differences(meaning, answer))

    cases = [question.case for question in asked.questions.asked]
    return answers(job.subject.environment, asked.family, cases, wrong, frontend=job.subject.frontend)


def _loaded(job: Job, asked: Asked) -> list[Parsed]:
    """Answers under load in the place of those alone: first of each case the one alone."""
    cases = [question.case for question in asked.questions.asked]
    told = under_load(job.subject.environment, asked.family, cases, frontend=job.subject.frontend)
    return [
        answer.model_copy(update={"way": f"{way}, {how}"})
        for _, way, alone, together in told
        for how, answer in (("alone", alone), ("together", together))
    ]


def _cell(
    job: Job, asked: Asked, parsed: Sequence[Parsed], *, seconds: float, alone: tuple[str, ...] = ()
) -> Cell:
    cell = cell_of(asked, parsed, environment=job.subject.name, described=job.subject.described)
    return cell.model_copy(update={"engine": job.engine, "seconds": round(seconds, 1), "alone": alone})


def cell_of(asked: Asked, parsed: Sequence[Parsed], *, environment: str, described: str) -> Cell:
    """A cell from the answers to what was asked in process."""
    family = asked.family
    refused = next((one.error for one in parsed if one.case is None), None)
    return Cell(
        environment=environment,
        described=described,
        family=family.name,
        group=asked.group,
        tool_parser=family.tool_parser,
        reasoning_parser=family.reasoning_parser,
        tokenizer="real" if family.real or family.form is None else "synthetic",
        engine="in-process",
        asked=asked.digest,
        refused=refused,
        cases=dict(_results(asked.questions, parsed)) if refused is None else {},
    )


def _results(asked: Questions, parsed: Sequence[Parsed]) -> Iterator[tuple[str, CaseResult]]:
    answers: dict[str | None, list[Parsed]] = {}
    for one in parsed:
        answers.setdefault(one.case, []).append(one)
    for question in asked.asked:
        yield question.case.name, _result(question, answers.get(question.case.name, []))
    for name, why in asked.left_out.items():
        yield name, CaseResult(topic="left out", left_out=why)


def _result(question: Question, answers: Sequence[Parsed]) -> CaseResult:
    wrong: dict[str, dict[str, None]] = {}
    seen: dict[str, str] = {}
    judged = question.meaning is not None
    for one, kinds in wrongs(question, answers):
        if kinds:
            wrong.setdefault(str(one.way), {}).update(dict.fromkeys(kinds))
            seen.setdefault(str(one.way), _shown(one))
    return CaseResult(
        topic=question.topic,
        text=next((one.said for one in answers if one.said), question.case.text),
        wrong={way: tuple(kinds) for way, kinds in wrong.items()},
        seen=seen,
        came={str(one.way): outcome(one) for one in answers} if judged else {},
        ways=len({one.way for one in answers}),
    )


def wrongs(question: Question, answers: Sequence[Parsed]) -> Iterator[tuple[Parsed, tuple[str, ...]]]:
    """Each answer and what is wrong with it; without a meaning, against the one that was not streamed."""
    wholes: dict[object, Parsed] = {}
    for one in answers:
        if question.barred:
            yield one, not_barred(one)
            continue
        if question.meaning is not None:
            yield one, (*differences(question.meaning, one), *misnamed(question.case.ids, one))
            continue
        if refused(one):  # what a grammar keeps the model from saying is no failure
            yield one, ()
            continue
        whole = wholes.setdefault(_compared_within(question, one), one)
        named = (
            *strangers(question.names, one),
            *dropped(question.values, one),
            *(called(one) if question.uncalled else ()),
        )
        if whole is not one:
            alone = disagreement(whole, whole) if question.topic == "load" else ()
            yield one, (*(kind for kind in disagreement(whole, one) if kind not in alone), *named)
            continue
        may_be_dropped = question.case.cut or question.topic == "load"  # markup that was cut off
        lost = () if may_be_dropped and one.error is None else (*losses(one), *unsaid(question.words, one))
        yield one, (*lost, *named)


def _compared_within(question: Question, one: Parsed) -> object:
    """Answers for which this is the same are compared with the first of them."""
    if question.topic == "load":
        return str(one.way).partition(",")[0]
    return one.at if question.case.cut else None


def outcome(one: Parsed) -> str:
    """Tells one answer from another, but for white space around its texts and the words of a refusal."""
    texts = [(one.reasoning or "").strip(), (one.content or "").strip()]
    error = REFUSED if refused(one) else one.error
    return short_digest(
        [*texts, [call.model_dump(include={"name", "arguments"}) for call in one.calls], error]
    )


def _shown(one: Parsed) -> str:
    at = {} if one.at is None else {"at": one.at}
    said = {"reasoning": one.reasoning, "content": one.content, "error": one.error}
    calls = [[call.name, call.arguments] for call in one.calls]
    told = {**at, **{key: value for key, value in said.items() if value}, "calls": calls}
    return json.dumps(told, ensure_ascii=False)[:SHOWN]
