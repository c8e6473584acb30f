"""Each reproduction can also fail: a right answer is `fixed`, and an unrelated answer another failure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import load_defects
from vllm_harness._defects.repro.parser_cases import ServedCase
from vllm_harness._defects.repro.reproducer import is_reproducible, reproducer_of
from vllm_harness._defects.repro.steps import RequestedSteps
from vllm_harness._exchange.delivery import Delivery
from vllm_harness._regression.cases.case import Case
from vllm_harness._regression.engines.answer import AnswerError, CaseAnswer, CaseCall, ErrorCode
from vllm_harness._scripted.meaning import ToolCall

REFUSED: dict[str, Any] = {
    "status": 400,
    "headers": {"content-type": "application/json"},
    "body": {"error": {"message": "No.", "type": "BadRequestError", "param": None, "code": 400}},
}
EMPTY: dict[str, Any] = {"status": 200, "headers": {}, "events": [], "stream": {}}
BROKEN: dict[str, Any] = {"status": 500, "headers": {}, "text": "Internal Server Error"}
DEFECTS = load_defects()


@pytest.mark.parametrize("answer", [REFUSED, BROKEN, EMPTY, {"status": 0, "headers": {}, "broken": "gone"}])
def test_an_unrelated_answer_is_another_failure(answer: dict[str, Any]) -> None:
    steps = [RequestedSteps(each, each.repro) for each in DEFECTS.values() if each.repro]
    verdicts = {each.defect.id: each.verdict_of([answer] * len(each.plan.steps)).verdict for each in steps}
    assert {each: verdict for each, verdict in verdicts.items() if verdict != "other failure"} == {}


def served() -> Iterator[tuple[Defect, ServedCase]]:
    """Yields the defects that a parser regression test case reproduces on a server."""
    for defect in filter(is_reproducible, DEFECTS.values()):
        if isinstance(found := reproducer_of(defect), ServedCase):
            yield defect, found


SERVED = list(served())


def shows_by_an_error(defect: Defect) -> bool:
    """Whether an error in vLLM may show the defect."""
    return any(code.startswith("error") for each in defect.failures for code in each.mismatches)


def test_a_right_answer_is_fixed() -> None:
    verdicts = {
        defect.id: found.verdict_of(
            [right(case, delivery) for case in found.cases for delivery in found.deliveries]
        ).verdict
        for defect, found in SERVED
    }
    assert {each: verdict for each, verdict in verdicts.items() if verdict != "fixed"} == {}


def test_a_refused_request_is_another_failure() -> None:
    error = AnswerError(code="http_400", message="No.")
    verdicts = {
        defect.id: found.verdict_of(
            [answer_of(case, each, error=error) for case in found.cases for each in found.deliveries]
        ).verdict
        for defect, found in SERVED
        if not shows_by_an_error(defect)
    }
    assert {each: verdict for each, verdict in verdicts.items() if verdict != "other failure"} == {}


def right(case: Case, delivery: Delivery) -> CaseAnswer:
    """Returns the expected answer; if the case expects no meaning, the whole model output as text."""
    meaning = case.expected.meaning
    if case.expected.refused:
        return answer_of(case, delivery, error=AnswerError(code=ErrorCode.GRAMMAR_REFUSED, message="No."))
    if meaning is None:
        return answer_of(case, delivery, content=case.input.text)
    return answer_of(
        case,
        delivery,
        reasoning=meaning.reasoning or None,
        content=meaning.text or None,
        calls=tuple(calls(meaning.calls, case.input.call_ids)),
    )


def calls(wanted: Iterable[ToolCall], ids: tuple[str, ...]) -> Iterator[CaseCall]:
    """Returns calls with the ids that the model's text contains."""
    for number, call in enumerate(wanted):
        made_up = f"call_{number}"
        yield CaseCall(
            name=call.name,
            arguments=call.arguments_json,
            id=ids[number] if ids else made_up,
            index=number,
            chunks=99,
        )


def answer_of(case: Case, delivery: Delivery, **fields: Any) -> CaseAnswer:
    """Returns an answer to a case."""
    return CaseAnswer(family="any", case=case.name, delivery=delivery, **fields)
