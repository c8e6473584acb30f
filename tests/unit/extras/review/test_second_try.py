"""What is said of a case that failed again, and which families are served."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_harness._exchange.delivery import Delivery, deliveries
from vllm_harness._regression.cases.case import Case, CaseInput, CaseSet, Expected, Topic
from vllm_harness._regression.engines.answer import AnswerError, CaseAnswer, CaseCall
from vllm_harness._regression.results.mismatches import Mismatch
from vllm_harness._scripted.families import load_families
from vllm_harness._scripted.meaning import Meaning, ToolCall
from vllm_harness.extras.review.over_http import covering
from vllm_harness.extras.review.second_try import failure_of
from vllm_harness.extras.review.verdict import ShownFailure

FAMILIES = load_families()
WHOLE, TOKENS = deliveries("whole tokens_1")
INPUT = CaseInput(name="call", text="<call>", deliveries=(WHOLE, TOKENS))
MEANT = Case(INPUT, Topic.CALLS, Expected(Meaning.of(calls=(ToolCall("f", {"a": 1}),))))
SAME = Case(INPUT, Topic.SEGMENTATION, Expected())


def answer(delivery: Delivery, arguments: str = '{"a": 1}', **more: object) -> CaseAnswer:
    """An answer with one call, which is streamed in one chunk."""
    calls = (CaseCall(name="f", arguments=arguments),)
    return CaseAnswer.model_validate(
        {"family": "hermes", "case": "call", "delivery": delivery, "calls": calls, **more}
    )


def shown(
    case: Case, answers: Sequence[CaseAnswer], known: dict[Delivery, tuple[Mismatch, ...]] | None = None
) -> ShownFailure | None:
    """What is said of a case of hermes."""
    cases = CaseSet(FAMILIES["hermes"], "chunks", (case,))
    return failure_of(cases, case, answers, known or {}, "tree:/v@0.32.0")


def test_a_case_that_is_right_again_is_no_failure() -> None:
    assert shown(MEANT, [answer(WHOLE), answer(TOKENS)]) is None
    assert shown(SAME, [answer(WHOLE), answer(TOKENS)]) is None


def test_what_was_wrong_before_is_no_failure() -> None:
    known = {TOKENS: (Mismatch.parse("arguments_not_json"),)}
    assert shown(MEANT, [answer(WHOLE), answer(TOKENS, "{")], known) is None


def test_a_failure_names_what_was_expected_and_where_it_parts() -> None:
    steps = ({"text": "<call>", "calls": [{"name": "f", "arguments": '{"a": 1}}', "index": 0}]},)
    answers = [answer(WHOLE), answer(TOKENS, '{"a": 1}}', steps=steps)]
    for case, standard in ((MEANT, "the meaning"), (SAME, "the first delivery")):
        failure = shown(case, answers)
        assert failure
        assert (failure.delivery, failure.mismatch) == ("tokens_1", "arguments_not_json")
        assert failure.standard == standard
        assert failure.expected.calls == (("f", '{"a": 1}'),)
        assert failure.parting
        assert (failure.parting.expected, failure.parting.actual, failure.parting.chunk) == ("", "}", 1)
        assert failure.command == (
            "vllm-harness regression --vllm tree:/v@0.32.0 --parsers hermes --cases chunks --only call"
        )


def test_an_error_names_the_line_that_raised_it() -> None:
    error = AnswerError(code="KeyError", message="'name'", place="tool_parsers/hermes_tool_parser.py:12")
    failure = shown(MEANT, [answer(WHOLE), answer(TOKENS, error=error, calls=())])
    assert failure
    assert failure.actual.error == "KeyError: 'name' (tool_parsers/hermes_tool_parser.py:12)"
    assert failure.parting is None


def test_rules_are_said_in_words() -> None:
    case = Case(INPUT, Topic.FORBIDDEN, Expected(calls_allowed=False))
    failure = shown(case, [answer(WHOLE)])
    assert failure
    assert failure.expected.rule == "no call, since the request allows none"


def test_parsers_that_cannot_be_made_are_a_failure() -> None:
    error = AnswerError(code="SyntaxError", message="invalid syntax")
    failure = shown(MEANT, [CaseAnswer(family="hermes", error=error)])
    assert failure
    assert failure.mismatch == "parsers_not_made"
    assert "invalid syntax" in failure.actual.error


def test_a_few_families_have_every_parser() -> None:
    names = ("hermes", "hermes_special", "qwen3_json", "qwen3_thinking", "holo2", "longcat")
    chosen = covering([FAMILIES[name] for name in names])
    assert [family.name for family in chosen] == ["hermes", "qwen3_json", "holo2", "longcat"]
