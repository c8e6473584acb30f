"""Runs regressed cases once more by themselves, and describes those that fail again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._exchange.delivery import Delivery
from vllm_harness._regression.cases.case import Case, CaseSet
from vllm_harness._regression.engines.answer import CaseAnswer
from vllm_harness._regression.engines.in_process import parse_all
from vllm_harness._regression.engines.plan import Engine
from vllm_harness._regression.results.compare import PARSERS_ARE_MADE, CaseChange, CaseKey
from vllm_harness._regression.results.judge import expected_of, judge
from vllm_harness._regression.results.mismatches import Mismatch, MismatchCode
from vllm_harness._regression.run import LIMIT_S
from vllm_harness.extras.review.parting import parting
from vllm_harness.extras.review.verdict import Message, ShownFailure, Step
from vllm_harness.extras.triage.severity import severity_of_mismatch, worst_first

_RULES = {
    "calls": "no call, since the request allows none",
    "functions": "calls of no other function than {}",
    "words": "the words {}, or a call",
    "values": "each of {} somewhere in the answer",
    "answer": "an answer that is {}",
}


@dataclass(frozen=True)
class SecondTry:
    """The results of running regressed cases again: those that failed again, and the flaky ones."""

    failures: tuple[ShownFailure, ...]
    flaky: tuple[str, ...]


def tried_again(
    changes: Sequence[CaseChange], case_sets: Sequence[CaseSet], head: VllmUnderTest
) -> SecondTry:
    """Runs regressed cases again in a new interpreter, with only the deliveries that decide.

    Args:
        changes: the cases that regressed.
        case_sets: the case sets that contain them.
        head: the vLLM after the change.

    Raises:
        InProcessError: the interpreter does not run.
    """
    by_case = {(change.family, change.group, change.case): change for change in changes}
    remaining = list(filter(None, (_reduced(cases, by_case) for cases in case_sets)))
    inputs = [(cases.family, cases.inputs) for cases in remaining]
    failures, flaky = [], []
    for answers in parse_all(head.environment, inputs, limit_s=LIMIT_S, traced=True) if inputs else ():
        cases = remaining[answers[0].case_set]
        for case in cases.cases:
            change = by_case[cases.family.name, cases.group, case.name]
            own = [answer for answer in answers if answer.case in (case.name, None)]
            again = failure_of(cases, case, own, change.before, head.spec)
            if again:
                failures.append(again)
            else:
                flaky.append(f"{cases.family.name}, {cases.group}, {case.name}")
    return SecondTry(tuple(failures), tuple(flaky))


def _reduced(cases: CaseSet, changes: Mapping[CaseKey, CaseChange]) -> CaseSet | None:
    """The regressed cases of a set; the first one if vLLM cannot make the parsers any more."""
    place = (cases.family.name, cases.group)
    chosen = [
        replace(case, input=case.input.model_copy(update={"deliveries": _deciding(case, change)}))
        for case in cases.cases
        if (change := changes.get((*place, case.name)))
    ]
    if not chosen and (*place, PARSERS_ARE_MADE) in changes:
        named = cases.cases[0].input.model_copy(update={"name": PARSERS_ARE_MADE})
        chosen = [replace(cases.cases[0], input=named)]
    return replace(cases, cases=tuple(chosen)) if chosen else None


def _deciding(case: Case, change: CaseChange) -> tuple[Delivery, ...]:
    """The deliveries with new mismatches, and the first one, which others may be compared with."""
    first, *others = case.input.deliveries
    return (first, *(each for each in others if set(change.after.get(each, ())) - set(_old(change, each))))


def _old(change: CaseChange, delivery: Delivery) -> tuple[Mismatch, ...]:
    return change.before.get(delivery, ())


def failure_of(
    cases: CaseSet,
    case: Case,
    answers: Sequence[CaseAnswer],
    known: Mapping[Delivery, Sequence[Mismatch]],
    spec: str,
    engine: Engine = "in-process",
) -> ShownFailure | None:
    """Describes the worst new mismatch of a case in its simplest delivery; None if there is none.

    Args:
        cases, case: the case, and the set that it is in.
        answers: its answers.
        known: the mismatches that it had before, by delivery.
        spec: the vLLM that answered.
        engine: the engine that ran it.
    """
    found = list(_found(case, answers, known))
    if not found:
        return None
    worst = min((mismatch for _, mismatch in found), key=worst_first)
    alike = [answer for answer, mismatch in found if mismatch == worst]
    answer = min(alike, key=lambda each: len(each.steps))
    wanted = _message(expected_of(case, answers, answer))
    got, steps = _answered(answer), tuple(map(Step.model_validate, answer.steps))
    delivery = "" if answer.delivery is None else answer.delivery.code
    return ShownFailure(
        family=cases.family.name,
        group=cases.group,
        case=case.name,
        delivery=delivery if answer.at is None or case.input.truncated else f"{delivery}, {answer.at}",
        standard="the meaning" if case.expected.meaning is not None else "the first delivery",
        mismatch=str(worst),
        title=worst.title,
        severity=severity_of_mismatch(worst.code),
        text=answer.alternative or case.input.text,
        steps=steps,
        expected=wanted,
        actual=got,
        parting=parting(wanted, got, steps),
        command=_command(spec, cases, case, engine),
    )


def _found(
    case: Case, answers: Sequence[CaseAnswer], known: Mapping[Delivery, Sequence[Mismatch]]
) -> Iterator[tuple[CaseAnswer, Mismatch]]:
    """The new mismatches, each with the answer that shows it."""
    yield from (
        (answer, Mismatch(MismatchCode.PARSERS_NOT_MADE)) for answer in answers if answer.case is None
    )
    made = [answer for answer in answers if answer.case is not None and case.name != PARSERS_ARE_MADE]
    for answer, mismatches in judge(case, [answer for answer in made if not answer.is_not_held]):
        assert answer.delivery is not None
        for mismatch in mismatches:
            if mismatch not in known.get(answer.delivery, ()):
                yield answer, mismatch


def _message(fields: Mapping[str, object]) -> Message:
    if isinstance(fields.get("calls"), list):
        return Message.model_validate(fields)
    rules = (
        _RULES[name].format(", ".join(map(repr, value)) if isinstance(value, list) else value)
        for name, value in fields.items()
    )
    return Message(rule="; ".join(rules))


def _answered(answer: CaseAnswer) -> Message:
    error = answer.error
    place = f" ({error.place})" if error and error.place else ""
    return Message(
        reasoning=answer.reasoning or "",
        content=answer.content or "",
        calls=tuple((call.name, call.arguments) for call in answer.calls),
        error=f"{error}{place}" if error else "",
    )


def _command(spec: str, cases: CaseSet, case: Case, engine: Engine) -> str:
    chosen = ["--parsers", cases.family.name, "--cases", cases.group, "--only", case.name]
    words = ["vllm-harness", "regression", "--vllm", spec, *chosen]
    return shlex.join([*words, *(["--engine", "http"] if engine == "http" else [])])
