"""What was meant against what came out."""

from __future__ import annotations

import pytest

from vllm_harness.regression.engines.in_process import Call, Parsed
from vllm_harness.regression.results.judge import (
    called,
    differences,
    dropped,
    losses,
    misnamed,
    not_barred,
    strangers,
    unsaid,
)
from vllm_harness.scripted.meaning import Meaning, Text, ToolCall

WEATHER = ToolCall("get_weather", {"city": "Paris", "days": 3})
SAID = Call(name="get_weather", arguments='{"days": 3, "city": "Paris"}')
MEANT = Meaning.of("I will check.", reasoning="Let me think.", calls=(WEATHER,))


def came(**fields: object) -> Parsed:
    whole = {"reasoning": "Let me think.", "content": "I will check.", "calls": (SAID,)}
    return Parsed.model_validate({"family": "any", **whole, **fields})


def test_the_same_meaning_in_other_bytes_is_right() -> None:
    assert differences(MEANT, came(content=" I will check.\n")) == ()


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"reasoning": None}, ["reasoning lost"]),
        ({"reasoning": "Let me"}, ["reasoning cut"]),
        ({"content": ""}, ["text lost"]),
        ({"content": "I will check.<tool_call>"}, ["text differs"]),
        ({"calls": ()}, ["call lost"]),
        ({"calls": (SAID, SAID)}, ["call too many"]),
        ({"calls": (Call(name=None, arguments="{}"),)}, ["call without a name"]),
        ({"calls": (Call(name="get_time", arguments="{}"),)}, ["another function's name"]),
        ({"calls": (Call(name="get_weather", arguments=""),)}, ["arguments are no JSON"]),
        ({"calls": (Call(name="get_weather", arguments="[]"),)}, ["arguments are no object"]),
        ({"calls": (Call(name="get_weather", arguments='{"city": "Paris"}'),)}, ["arguments differ"]),
        ({"calls": (SAID.model_copy(update={"index": 1}),)}, ["calls are not numbered from 0 on"]),
        ({"calls": (SAID.model_copy(update={"index": 0}),)}, []),
        ({"error": "TypeError: no"}, ["raises TypeError"]),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, object], wrong: list[str]) -> None:
    assert differences(MEANT, came(**fields)) == tuple(wrong)


@pytest.mark.parametrize(
    ("way", "length", "pieces", "wrong"),
    [
        ("1", 190, 2, ["arguments are not streamed"]),
        ("1", 190, 40, []),
        ("1", 190, None, []),
        ("1", 30, 2, []),
        ("0", 190, 1, []),
    ],
)
def test_long_arguments_come_in_pieces(way: str, length: int, pieces: int | None, wrong: list[str]) -> None:
    meant = Meaning.of(calls=(ToolCall("f", {"x": "a" * length}),))
    call = Call(name="f", arguments=f'{{"x": "{"a" * length}"}}', pieces=pieces)
    assert differences(meant, Parsed(family="any", way=way, calls=(call,))) == tuple(wrong)


def test_a_call_of_half_a_name_is_a_stranger() -> None:
    half = came(calls=(Call(name="get_wea", arguments="{}"),))
    assert strangers(["get_weather"], half) == ("another function's name",)
    assert strangers(["get_weather"], came()) == ()
    assert strangers([], half) == ()


@pytest.mark.parametrize(
    ("said", "given", "wrong"),
    [
        ([], ["a", "b"], []),
        ([], ["a", "a"], ["two calls, one id"]),
        ([], [None, None], []),
        (["f:0", "f:1"], ["f:0", "f:1"], []),
        (["f:0", "f:1"], ["f:0", "x"], ["another id"]),
        (["f:0", "f:1"], ["f:0", None], ["another id"]),
        (["f:0", "f:1"], ["f:0"], []),
    ],
)
def test_ids_of_calls(said: list[str], given: list[str | None], wrong: list[str]) -> None:
    calls = tuple(Call(name="f", arguments="{}", id=one) for one in given)
    assert misnamed(said, came(calls=calls)) == tuple(wrong)


@pytest.mark.parametrize(("one", "other"), [("true", 1), ("1", True), ('"1"', 1), ("[1]", [True])])
def test_types_of_arguments_count(one: str, other: object) -> None:
    meant = Meaning.of(calls=(ToolCall("f", {"x": other}),))
    result = Parsed(family="any", calls=(Call(name="f", arguments=f'{{"x": {one}}}'),))
    assert differences(meant, result) == ("arguments differ",)


def test_whole_numbers_have_no_type_of_their_own() -> None:
    meant = Meaning.of(calls=(ToolCall("f", {"x": 1}),))
    assert differences(meant, Parsed(family="any", calls=(Call(name="f", arguments='{"x": 1.0}'),))) == ()


def test_text_where_none_was_meant() -> None:
    meant = Meaning((WEATHER,))
    result = Parsed(family="any", content="<tool_call>", calls=(SAID,))
    assert differences(meant, result) == ("text where none was meant",)
    assert differences(Meaning((Text("a"),)), Parsed(family="any", content="a")) == ()


def test_what_is_barred_must_be_refused() -> None:
    assert not_barred(Parsed(family="f", error="grammar refuses: 'H' after ''")) == ()
    assert not_barred(Parsed(family="f", error="HTTP 400: no")) == ("raises HTTP 400",)
    assert not_barred(Parsed(family="f", content="Hello.")) == ("the model is not held",)


def test_what_was_said_is_in_an_answer_without_calls() -> None:
    assert unsaid({"Paris"}, Parsed(family="f", content="In Paris.")) == ()
    assert unsaid({"Paris"}, Parsed(family="f", reasoning="Paris", content="In")) == ()
    assert unsaid({"Paris", "Rome"}, Parsed(family="f", content="In Paris.")) == ("lost without a word",)
    assert unsaid({"Paris"}, Parsed(family="f", calls=(SAID,))) == ()
    assert unsaid({"Paris"}, Parsed(family="f", error="TypeError: no")) == ()


def test_a_value_that_was_said_is_in_an_answer_with_calls() -> None:
    call = Call(name="f", arguments='{"city": "Paris"}')
    assert dropped({"Paris"}, Parsed(family="f", calls=(call,))) == ()
    assert dropped({"Rome"}, Parsed(family="f", content="Rome", calls=(call,))) == ()
    assert dropped({"Paris", "3"}, Parsed(family="f", calls=(call,))) == ("a value lost without a word",)
    assert dropped({"3"}, Parsed(family="f", content="3 days")) == ()


def test_a_call_that_the_request_forbids() -> None:
    assert called(Parsed(family="f", calls=(SAID,))) == ("a call where none is allowed",)
    assert called(Parsed(family="f", content="No.")) == ()


def test_tokens_of_reasoning_are_counted_where_there_is_any() -> None:
    assert differences(MEANT, came(thought=4)) == differences(MEANT, came(thought=None)) == ()
    assert differences(MEANT, came(thought=0)) == ("tokens of reasoning not counted",)
    assert differences(MEANT, came(thought=6, spoken=4)) == ()
    assert differences(MEANT, came(thought=7, spoken=4)) == ("tokens of reasoning miscounted",)
    assert differences(Meaning.of("Hi."), Parsed(family="any", content="Hi.", thought=0)) == ()
    hidden = Parsed(family="any", content="Hi.", thought=9, spoken=0)
    assert differences(Meaning.of("Hi."), hidden) == losses(hidden) == ("tokens of reasoning miscounted",)
