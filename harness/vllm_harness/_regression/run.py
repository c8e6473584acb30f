"""Runs the unfinished cells; a cell is one family and one group of cases on one server environment."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TypeVar

from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import HarnessError
from vllm_harness._exchange.delivery import Delivery, DeliveryField
from vllm_harness._extensions import MEASURED_IN_PROCESS, MEASURED_OVER_HTTP, load
from vllm_harness._machine.shard import Executor, Needs, Shard, ThisMachine
from vllm_harness._machine.tasks import raise_if_interrupted
from vllm_harness._regression.cases.case import Case, CaseInput, CaseSet, Topic, short_digest
from vllm_harness._regression.engines.answer import AnswerError, CaseAnswer, ErrorCode
from vllm_harness._regression.engines.in_process import parse_all
from vllm_harness._regression.engines.over_http import request_all, request_under_load, served_by
from vllm_harness._regression.engines.plan import Engine
from vllm_harness._regression.results.cells import CaseResult, Cell, RegressionRun
from vllm_harness._regression.results.judge import expected_of, judge, message_of
from vllm_harness._regression.results.mismatches import Mismatch
from vllm_harness._scripted.families import Family, entry_of
from vllm_harness._server.leases.allocation import INTERPRETER_GIB
from vllm_harness._server.leases.expected import expected_needs

T = TypeVar("T")
LIMIT_S = 3600.0
EXAMPLE_LENGTH = 400
"""The maximum length of an answer that is stored as an example, in characters."""


@dataclass(frozen=True)
class Batch:
    """Case sets that share an interpreter, or that run on servers started one after another."""

    vllm: VllmUnderTest
    engine: Engine
    case_sets: tuple[CaseSet, ...]
    run: RegressionRun


def unfinished(
    run: RegressionRun,
    environments: Sequence[VllmUnderTest],
    case_sets: Sequence[CaseSet],
    *,
    engine: Engine = "in-process",
    parallel: int = 1,
) -> list[Batch]:
    """Divides the unfinished cells, each a case set on a vLLM, into `parallel` batches for each vLLM."""
    batches = []
    for vllm in environments:
        remaining = [
            cases
            for cases in case_sets
            if cases.cases
            and not run.finished(vllm.name, engine, cases.family.name, cases.group, cases.digest)
        ]
        batches += [Batch(vllm, engine, share, run) for share in _shares(remaining, engine, parallel)]
    return batches


def _shares(case_sets: Sequence[CaseSet], engine: Engine, parallel: int) -> Iterator[tuple[CaseSet, ...]]:
    """Divides case sets; over HTTP, those of a family stay together, since they share a server."""
    together: dict[object, list[CaseSet]] = {}
    for cases in case_sets:
        key = cases.family.name if engine == "http" else (cases.family.name, cases.group)
        together.setdefault(key, []).append(cases)
    for share in shares(list(together.values()), parallel):
        yield tuple(chain.from_iterable(share))


def shares(items: Sequence[T], parallel: int) -> list[Sequence[T]]:
    """Deals items in turn into `parallel` shares; omits empty shares."""
    return [share for start in range(parallel) if (share := items[start::parallel])]


def run_batches(
    run: RegressionRun,
    batches: Iterable[Batch],
    *,
    parallel: int,
    done: Callable[[Cell], None],
    executor: Executor | None = None,
) -> list[HarnessError]:
    """Runs batches in parallel, writes each cell when it finishes, and returns the errors of failed batches.

    Args:
        parallel: the number of batches to run at a time on this machine if there is no executor.
        done: called with each finished cell.
        executor: runs the batches; defaults to this machine.
    """

    def write(cell: Cell) -> None:
        raise_if_interrupted()  # after a stop, the answers may come from a killed server
        run.write(cell)
        done(cell)

    return (executor or ThisMachine(parallel)).run(list(map(shard_of, batches)), write)


def shard_of(batch: Batch) -> Shard[Cell]:
    """Returns the shard (a unit of work for an executor) that runs a batch."""
    vllm, families = batch.vllm, [cases.family for cases in batch.case_sets]
    needs = Needs(memory_gib=INTERPRETER_GIB)
    if batch.engine == "http":
        of_servers = [
            expected_needs(entry_of(family), vllm.environment, "scripted", vllm.frontend)
            for family in families
        ]
        needs = Needs(
            memory_gib=max(needs.memory_gib for needs in of_servers),
            gpus=max(needs.gpus for needs in of_servers),
        )
    return Shard(
        name=f"{vllm.name} {', '.join(dict.fromkeys(family.name for family in families))}",
        cells=tuple(map(_name_of, batch.case_sets)),
        work=partial(_cells_named, batch),
        needs=needs,
        preparation=vllm.preparation,
        server=f"{vllm.name} {families[0].name}" if batch.engine == "http" else "",
        weight=float(sum(len(input_.deliveries) for cases in batch.case_sets for input_ in cases.inputs)),
    )


def _name_of(cases: CaseSet) -> str:
    return f"{cases.family.name}.{cases.group}"


def _cells_named(batch: Batch, names: Collection[str]) -> Iterator[tuple[str, Cell]]:
    """Runs the named case sets of a batch on the machine that calls this function."""
    here = batch.vllm.here()
    case_sets = tuple(cases for cases in batch.case_sets if _name_of(cases) in names)
    named = replace(batch, vllm=here, case_sets=case_sets)
    is_remote = here is not batch.vllm
    for cell in _over_http(named, is_remote) if batch.engine == "http" else _in_process(named):
        yield f"{cell.family}.{cell.group}", cell


def _in_process(batch: Batch) -> Iterator[Cell]:
    parsed = tuple(cases for cases in batch.case_sets if cases.group != "cost")
    measured = tuple(cases for cases in batch.case_sets if cases.group == "cost")
    environment = batch.vllm.environment
    if parsed:
        yield from _timed(batch.vllm, parsed, parse_all(environment, _inputs(parsed), limit_s=LIMIT_S))
    if measured:
        measure_all = load(MEASURED_IN_PROCESS, "the group cost")
        yield from _timed(batch.vllm, measured, measure_all(environment, _inputs(measured)))


def _inputs(case_sets: Sequence[CaseSet]) -> list[tuple[Family, Sequence[CaseInput]]]:
    return [(cases.family, cases.inputs) for cases in case_sets]


def _timed(
    vllm: VllmUnderTest, case_sets: Sequence[CaseSet], answered: Iterable[list[CaseAnswer]]
) -> Iterator[Cell]:
    """Yields the cell of each case set when its answers arrive, with the time that passed."""
    started = time.monotonic()
    for answers in answered:
        now = time.monotonic()
        yield cell_of(vllm, case_sets[answers[0].case_set], answers, seconds=now - started)
        started = now


def _over_http(batch: Batch, is_remote: bool) -> Iterator[Cell]:
    """Yields the cells that servers answer; raises errors of the machine itself if the machine is remote."""
    by_server: dict[object, deque[CaseSet]] = {}
    for cases in batch.case_sets:
        by_server.setdefault((cases.family.name, cases.group == "cost"), deque()).append(cases)
    for remaining in by_server.values():
        while remaining:
            started = time.monotonic()
            try:
                for cases, answers in _served(batch, remaining):
                    seconds, started = time.monotonic() - started, time.monotonic()
                    yield cell_of(batch.vllm, cases, answers, engine="http", seconds=seconds)
            except HarnessError as error:
                if error.of_machine and is_remote:
                    raise
                cases = remaining.popleft()
                failure = AnswerError(code=type(error).__name__, message=error.message)
                answers = [CaseAnswer(family=cases.family.name, error=failure)]
                seconds = time.monotonic() - started
                yield cell_of(batch.vllm, cases, answers, engine="http", seconds=seconds)


def _served(batch: Batch, remaining: deque[CaseSet]) -> Iterator[tuple[CaseSet, list[CaseAnswer]]]:
    """Starts the server of a family, and removes and answers case sets as long as the server lives."""
    vllm, family = batch.vllm, remaining[0].family
    if remaining[0].group == "cost":  # with flags of its own
        answers = list(load(MEASURED_OVER_HTTP, "the group cost")(batch.run, vllm, remaining[0]))
        yield remaining.popleft(), answers
        return
    entry = entry_of(family)
    with served_by(entry, lane="scripted", vllm=vllm.environment, frontend=vllm.frontend) as server:
        while remaining and server.alive():
            request = request_under_load if remaining[0].group == "load" else request_all
            answers = list(request(server, family, remaining[0].inputs))
            yield remaining.popleft(), answers


def cell_of(
    vllm: VllmUnderTest,
    cases: CaseSet,
    answers: Sequence[CaseAnswer],
    *,
    engine: Engine = "in-process",
    seconds: float = 0.0,
) -> Cell:
    """Makes the cell for the answers to a case set."""
    family = cases.family
    start_error = next((str(answer.error) for answer in answers if answer.case is None), None)
    return Cell(
        environment=vllm.name,
        described=vllm.described,
        family=family.name,
        group=cases.group,
        tool_parser=family.tool_parser,
        reasoning_parser=family.reasoning_parser,
        tokenizer="real" if family.real or family.form is None else "synthetic",
        engine=engine,
        frontend=vllm.frontend,
        cases_digest=cases.digest,
        seconds=round(seconds, 1),
        start_error=start_error,
        cases=dict(_case_results(cases, answers)) if start_error is None else {},
    )


def _case_results(cases: CaseSet, answers: Sequence[CaseAnswer]) -> Iterator[tuple[str, CaseResult]]:
    by_case: dict[str | None, list[CaseAnswer]] = {}
    for answer in answers:
        by_case.setdefault(answer.case, []).append(answer)
    for case in cases.cases:
        yield case.name, _case_result(case, by_case.get(case.name, []))
    for name, reason in cases.left_out.items():
        yield name, CaseResult(topic=Topic.LEFT_OUT, left_out=reason)


def _case_result(case: Case, answers: Sequence[CaseAnswer]) -> CaseResult:
    by_delivery: dict[DeliveryField, dict[Mismatch, None]] = {}
    examples: dict[DeliveryField, str] = {}
    expected: dict[DeliveryField, str] = {}
    judged = [answer for answer in answers if not answer.is_not_held]
    for answer, mismatches in judge(case, judged):
        delivery = _delivery(answer)
        if mismatches:
            by_delivery.setdefault(delivery, {}).update(dict.fromkeys(mismatches))
            if delivery not in expected:
                wanted = json.dumps(expected_of(case, judged, answer), ensure_ascii=False)
                expected[delivery] = wanted[:EXAMPLE_LENGTH]
        if mismatches or delivery.api is not None:
            examples.setdefault(delivery, _example(answer))
    has_one_answer = case.expected.meaning is not None
    return CaseResult(
        topic=case.topic,
        text=next((answer.alternative for answer in answers if answer.alternative), case.input.text),
        mismatches={delivery: tuple(mismatches) for delivery, mismatches in by_delivery.items()},
        examples=examples,
        expected=expected,
        digests={_delivery(answer): answer_digest(answer) for answer in judged} if has_one_answer else {},
        deliveries=len({answer.delivery for answer in judged}),
        not_held={_delivery(each): each.error.message for each in answers if each.error and each.is_not_held},
        curves={_delivery(answer): answer.curve for answer in answers if answer.curve is not None},
    )


def _delivery(answer: CaseAnswer) -> Delivery:
    assert answer.delivery is not None
    return answer.delivery


def answer_digest(answer: CaseAnswer) -> str:
    """Returns a digest of an answer that ignores outer white space and the message of a refusal."""
    texts = [(answer.reasoning or "").strip(), (answer.content or "").strip()]
    calls = [call.model_dump(include={"name", "arguments"}) for call in answer.calls]
    error = None if answer.error is None else str(answer.error)
    return short_digest([*texts, calls, ErrorCode.GRAMMAR_REFUSED if answer.is_refused else error])


def _example(answer: CaseAnswer) -> str:
    shown: dict[str, object] = {} if answer.at is None else {"at": answer.at}
    shown |= {} if answer.error is None else {"error": str(answer.error)}
    calls = [(call.name, call.arguments) for call in answer.calls]
    shown |= message_of(answer.reasoning, answer.content, calls)
    return json.dumps(shown, ensure_ascii=False)[:EXAMPLE_LENGTH]
