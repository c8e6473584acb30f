"""Mismatches between an expected and an actual answer."""

from __future__ import annotations

import pytest

from vllm_harness._exchange.delivery import Chunking, Delivery
from vllm_harness._regression.engines.answer import AnswerError, CaseAnswer, CaseCall
from vllm_harness._regression.results.judge import (
    call_id_mismatches,
    forbidden_call_mismatches,
    function_mismatches,
    how,
    loss_mismatches,
    meaning_mismatches,
    unless_refused,
    value_mismatches,
    word_mismatches,
)
from vllm_harness._regression.results.mismatches import Mismatch
from vllm_harness._scripted.meaning import Meaning, Text, ToolCall

WEATHER = ToolCall("get_weather", {"city": "Paris", "days": 3})
CALL = CaseCall(name="get_weather", arguments='{"days": 3, "city": "Paris"}')
TOKEN_BY_TOKEN = Delivery(Chunking.TOKENS, tokens=1)
MEANING = Meaning.of("I will check.", reasoning="Let me think.", calls=(WEATHER,))


def mismatches(*codes: str) -> tuple[Mismatch, ...]:
    return tuple(map(Mismatch.parse, codes))


def answer(**fields: object) -> CaseAnswer:
    whole = {"reasoning": "Let me think.", "content": "I will check.", "calls": (CALL,)}
    return CaseAnswer.model_validate({"family": "any", **whole, **fields})


def test_white_space_and_key_order_do_not_matter() -> None:
    assert meaning_mismatches(MEANING, answer(content=" I will check.\n")) == ()


@pytest.mark.parametrize(
    ("fields", "codes"),
    [
        ({"reasoning": None}, ["reasoning_lost"]),
        ({"reasoning": "Let me"}, ["reasoning_cut"]),
        ({"content": ""}, ["text_lost"]),
        ({"content": "I will check.<tool_call>"}, ["text_differs:leaked"]),
        ({"calls": ()}, ["call_lost"]),
        ({"calls": (CALL, CALL)}, ["call_extra:repeated"]),
        ({"calls": (CaseCall(name=None, arguments="{}"),)}, ["call_unnamed"]),
        ({"calls": (CaseCall(name="get_time", arguments="{}"),)}, ["function_differs"]),
        ({"calls": (CaseCall(name="get_weather", arguments=""),)}, ["arguments_not_json"]),
        ({"calls": (CaseCall(name="get_weather", arguments="[]"),)}, ["arguments_not_object"]),
        (
            {"calls": (CaseCall(name="get_weather", arguments='{"city": "Paris"}'),)},
            ["arguments_differ:lost"],
        ),
        ({"calls": (CALL.model_copy(update={"index": 1}),)}, ["call_index_differs"]),
        ({"calls": (CALL.model_copy(update={"index": 0}),)}, []),
        ({"error": AnswerError(code="TypeError")}, ["error:TypeError"]),
    ],
)
def test_a_difference_has_its_code(fields: dict[str, object], codes: list[str]) -> None:
    assert meaning_mismatches(MEANING, answer(**fields)) == mismatches(*codes)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ("one three", "lost"),
        ("one two two three", "repeated"),
        ("one two three three", "repeated"),
        ("one two <tool_call>three", "leaked"),
        ("(one two three)", "leaked"),
        ("two one three", "reordered"),
        ("one 2 three", ""),
    ],
)
def test_how_a_text_differs(actual: str, expected: str) -> None:
    assert how("one two three", actual) == expected


def test_reordered_calls_differ_from_other_calls() -> None:
    meaning = Meaning.of(calls=(ToolCall("f", {"i": 1}), ToolCall("g", {}), ToolCall("f", {"i": 2})))
    first, second, third = (CaseCall(name=call.name, arguments=call.arguments_json) for call in meaning.calls)

    def differs(*calls: CaseCall) -> tuple[Mismatch, ...]:
        return meaning_mismatches(meaning, CaseAnswer(family="any", calls=calls))

    assert differs(third, second, first) == mismatches("arguments_differ:reordered")
    assert differs(second, first, third) == mismatches("function_differs:reordered")
    assert differs(first, second, third, first) == mismatches("call_extra:repeated")
    other = CaseCall(name="h", arguments="{}")
    assert differs(first, second, third, other) == mismatches("call_extra")
    assert differs(first, other, third) == mismatches("function_differs")


@pytest.mark.parametrize(
    ("delivery", "length", "chunks", "codes"),
    [
        (TOKEN_BY_TOKEN, 190, 2, ["arguments_not_streamed"]),
        (TOKEN_BY_TOKEN, 190, 40, []),
        (TOKEN_BY_TOKEN, 190, None, []),
        (TOKEN_BY_TOKEN, 30, 2, []),
        (Delivery(Chunking.ALL), 190, 1, []),
    ],
)
def test_long_arguments_arrive_in_chunks(
    delivery: Delivery, length: int, chunks: int | None, codes: list[str]
) -> None:
    meaning = Meaning.of(calls=(ToolCall("f", {"x": "a" * length}),))
    call = CaseCall(name="f", arguments=f'{{"x": "{"a" * length}"}}', chunks=chunks)
    assert meaning_mismatches(
        meaning, CaseAnswer(family="any", delivery=delivery, calls=(call,))
    ) == mismatches(*codes)


def test_a_truncated_name_is_another_function() -> None:
    half = answer(calls=(CaseCall(name="get_wea", arguments="{}"),))
    assert function_mismatches(["get_weather"], half) == mismatches("function_differs")
    assert function_mismatches(["get_weather"], answer()) == ()
    assert function_mismatches([], half) == ()


@pytest.mark.parametrize(
    ("ids", "actual", "codes"),
    [
        ([], ["a", "b"], []),
        ([], ["a", "a"], ["call_id_repeated"]),
        ([], [None, None], []),
        (["f:0", "f:1"], ["f:0", "f:1"], []),
        (["f:0", "f:1"], ["f:0", "x"], ["call_id_differs"]),
        (["f:0", "f:1"], ["f:0", None], ["call_id_differs"]),
        (["f:0", "f:1"], ["f:0"], []),
    ],
)
def test_ids_of_calls(ids: list[str], actual: list[str | None], codes: list[str]) -> None:
    calls = tuple(CaseCall(name="f", arguments="{}", id=call_id) for call_id in actual)
    assert call_id_mismatches(ids, answer(calls=calls)) == mismatches(*codes)


@pytest.mark.parametrize(("actual", "expected"), [("true", 1), ("1", True), ('"1"', 1), ("[1]", [True])])
def test_types_of_arguments_count(actual: str, expected: object) -> None:
    meaning = Meaning.of(calls=(ToolCall("f", {"x": expected}),))
    result = CaseAnswer(family="any", calls=(CaseCall(name="f", arguments=f'{{"x": {actual}}}'),))
    assert meaning_mismatches(meaning, result) == mismatches("arguments_differ")


def test_1_and_1_0_are_equal() -> None:
    meaning = Meaning.of(calls=(ToolCall("f", {"x": 1}),))
    assert (
        meaning_mismatches(
            meaning, CaseAnswer(family="any", calls=(CaseCall(name="f", arguments='{"x": 1.0}'),))
        )
        == ()
    )


def test_unexpected_text() -> None:
    meaning = Meaning((WEATHER,))
    result = CaseAnswer(family="any", content="<tool_call>", calls=(CALL,))
    assert meaning_mismatches(meaning, result) == mismatches("text_unexpected")
    assert meaning_mismatches(Meaning((Text("a"),)), CaseAnswer(family="any", content="a")) == ()


def test_what_the_request_rules_out_must_be_refused() -> None:
    assert unless_refused(CaseAnswer(family="f", error=AnswerError(code="grammar_refused"))) == ()
    assert unless_refused(CaseAnswer(family="f", error=AnswerError(code="http_400"))) == mismatches(
        "error:http_400"
    )
    assert unless_refused(CaseAnswer(family="f", content="Hello.")) == mismatches("grammar_not_enforced")


def test_an_answer_without_calls_must_contain_the_words() -> None:
    assert word_mismatches({"Paris"}, CaseAnswer(family="f", content="In Paris.")) == ()
    assert word_mismatches({"Paris"}, CaseAnswer(family="f", reasoning="Paris", content="In")) == ()
    assert word_mismatches({"Paris", "Rome"}, CaseAnswer(family="f", content="In Paris.")) == mismatches(
        "words_lost"
    )
    assert word_mismatches({"Paris"}, CaseAnswer(family="f", calls=(CALL,))) == ()
    assert word_mismatches({"Paris"}, CaseAnswer(family="f", error=AnswerError(code="TypeError"))) == ()


def test_an_answer_with_calls_must_contain_the_values() -> None:
    call = CaseCall(name="f", arguments='{"city": "Paris"}')
    assert value_mismatches({"Paris"}, CaseAnswer(family="f", calls=(call,))) == ()
    assert value_mismatches({"Rome"}, CaseAnswer(family="f", content="Rome", calls=(call,))) == ()
    assert value_mismatches({"Paris", "3"}, CaseAnswer(family="f", calls=(call,))) == mismatches(
        "values_lost"
    )
    assert value_mismatches({"3"}, CaseAnswer(family="f", content="3 days")) == ()


def test_a_forbidden_call() -> None:
    assert forbidden_call_mismatches(CaseAnswer(family="f", calls=(CALL,))) == mismatches("call_forbidden")
    assert forbidden_call_mismatches(CaseAnswer(family="f", content="No.")) == ()


def test_reasoning_tokens_must_be_counted() -> None:
    assert (
        meaning_mismatches(MEANING, answer(counted_reasoning=4))
        == meaning_mismatches(MEANING, answer(counted_reasoning=None))
        == ()
    )
    assert meaning_mismatches(MEANING, answer(counted_reasoning=0)) == mismatches(
        "reasoning_tokens_not_counted"
    )
    assert meaning_mismatches(MEANING, answer(counted_reasoning=6, reasoning_tokens=4)) == ()
    assert meaning_mismatches(MEANING, answer(counted_reasoning=7, reasoning_tokens=4)) == mismatches(
        "reasoning_tokens_miscounted"
    )
    assert (
        meaning_mismatches(Meaning.of("Hi."), CaseAnswer(family="any", content="Hi.", counted_reasoning=0))
        == ()
    )
    hidden = CaseAnswer(family="any", content="Hi.", counted_reasoning=9, reasoning_tokens=0)
    assert (
        meaning_mismatches(Meaning.of("Hi."), hidden)
        == loss_mismatches(hidden)
        == mismatches("reasoning_tokens_miscounted")
    )
