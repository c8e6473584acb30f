"""What a family is asked in each group."""

from __future__ import annotations

import pytest

from vllm_harness.regression.cases.malformed import Change, broken_texts, load_malformed
from vllm_harness.regression.cases.meanings import load_meanings
from vllm_harness.regression.cases.questions import GROUPS, WAYS, Questions, questions
from vllm_harness.regression.results.results import Engine
from vllm_harness.scripted.families import load_families
from vllm_harness.scripted.meaning import Text

ENGINES: tuple[Engine, ...] = ("in-process", "http")


def asked(group: str, family: str, engine: Engine = "in-process") -> Questions:
    return questions(group, load_families()[family], load_meanings(), engine)  # type: ignore[arg-type]


def test_a_change_is_made_to_the_last_match_or_the_first() -> None:
    last = Change.model_validate({"name": "any", "find": "(a)", "with": r"\1\1"})
    first = Change.model_validate({"name": "any", "find": "a", "with": "", "first": True})
    assert last.apply("banana") == "bananaa"
    assert first.apply("banana") == "bnana"
    assert last.apply("xyz") == "xyz"


@pytest.mark.parametrize(
    "family", [name for name, one in load_families().items() if one.form and one.tool_parser]
)
def test_every_family_says_most_of_it_wrongly(family: str) -> None:
    texts = list(broken_texts(load_families()[family]))
    spoiled = {text.name.partition(", ")[2] for text in texts if not text.cut}
    assert len(spoiled) >= 8
    assert any(text.cut for text in texts)
    assert len({text.name for text in texts}) == len(texts)


def test_a_text_tells_which_functions_it_calls() -> None:
    names = {text.name: text.names for text in broken_texts(load_families()["hermes"])}
    assert names["call, cut off"] == {"get_weather"}
    assert names["call, name unknown"] == {"get_weather", "no_such_function"}


def test_ids_are_asked_where_a_text_says_them() -> None:
    ids = {question.case.name: question.case.ids for question in asked("canonical", "kimi_k2").asked}
    assert ids["two calls"] == ("functions.get_weather:0", "functions.get_time:1")
    assert ids["text"] == ()
    assert not any(question.case.ids for question in asked("canonical", "hermes").asked)


def test_every_change_spoils_some_family_s_text() -> None:
    made = {
        text.name.partition(", ")[2] for family in load_families().values() for text in broken_texts(family)
    }
    assert {change.name for change in load_malformed().changes} <= made


def test_markers_are_spelled_only_where_they_are_tokens() -> None:
    def spelled(family: str) -> list[bool]:
        return [question.case.spelled for question in asked("chunks", family).asked]

    assert any(spelled("qwen3_coder"))
    assert not any(spelled("pythonic"))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("group", GROUPS)
def test_names_are_unique_and_ways_are_the_engine_s(group: str, engine: Engine) -> None:
    found = asked(group, "hermes", engine).asked
    assert bool(found) == (group in WAYS[engine])
    assert len({question.case.name for question in found}) == len(found)
    assert all(question.case.ways for question in found)


def test_what_a_server_cannot_cut_is_not_asked_over_http() -> None:
    assert any(question.case.cut for question in asked("malformed", "hermes").asked)
    assert not any(question.case.cut for question in asked("malformed", "hermes", "http").asked)


def test_a_family_that_shows_its_thoughts_is_to_show_them() -> None:
    found = {question.case.name: question for question in asked("canonical", "minimax_m2_append_think").asked}
    meaning = found["reasoning and text"].meaning
    assert meaning is not None
    assert meaning.parts == (Text("<think>Let me think.\n</think>\n\nHello there."),)


def test_a_marker_in_a_string_is_spelled_with_ordinary_tokens() -> None:
    found = {question.case.name: question for question in asked("canonical", "hermes").asked}
    case = found["call, </tool_call> in a string"].case
    ((start, end),) = case.quoted
    assert case.text[start:end] == "</tool_call>"
    assert case.pieces == [case.text[:start], *"</tool_call>", case.text[end:]]
    assert found["call"].case.pieces == [found["call"].case.text]


def test_a_marker_that_a_format_cannot_quote_is_left_out() -> None:
    found = asked("canonical", "glm47")
    assert "call, </arg_value> in a string" in found.left_out
    assert "call, <arg_value> in a string" in {question.case.name for question in found.asked}


def test_a_special_token_is_asked_where_the_request_leaves_them_out() -> None:
    def strayed(family: str) -> set[str]:
        return {q.case.name for q in asked("canonical", family).asked if q.topic == "special token"}

    assert strayed("kimi_k2") == {"text, special token", "reasoning and text, special token"}
    assert strayed("hermes") == {"text, special token"}
    assert "skip_special_tokens" in load_families()["inkling"].request
    assert not strayed("inkling")


def test_a_forced_call_offers_what_it_calls_and_every_text_it_may_be() -> None:
    found = {question.case.name: question for question in asked("forced", "qwen3_json").asked}
    required, named = found["reasoning and call, required"].case, found["reasoning and call, named"].case
    assert (required.choice, named.choice) == ("required", "get_weather")
    assert [tool["function"]["name"] for tool in named.tools] == ["get_time", "get_weather"]
    free = "<think>\nLet me think.\n</think>"
    assert all(text.startswith(free) for text in (required.text, *required.instead))
    assert {text.removeprefix(free) for text in named.instead} >= {
        '{"city": "Paris", "days": 3}<|im_end|>',
        '[{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}]<|im_end|>',
    }


def test_a_forced_call_bars_a_text_and_another_function() -> None:
    barred = {
        question.case.name: question.case for question in asked("forced", "hermes").asked if question.barred
    }
    assert {name: case.choice for name, case in barred.items()} == {
        "text, required": "required",
        "another function, named": "get_time",
    }
    assert not any(case.instead for case in barred.values())


def test_a_server_is_asked_fewer_forced_calls() -> None:
    served, parsed = (asked("forced", "hermes", engine).asked for engine in ("http", "in-process"))
    names = {question.case.name for question in served}
    assert names < {question.case.name for question in parsed}
    assert {"call, required", "call, named", "text, required"} <= names


def test_a_prompt_may_quote_the_markers_of_its_family() -> None:
    quoted = {one.case.name: one.case.asked for one in asked("canonical", "kimi_k2").asked if one.case.asked}
    assert set(quoted) == {
        f"{name}, markers in the prompt" for name in ("call", "reasoning and text", "reasoning and call")
    }
    assert quoted["call, markers in the prompt"] == (
        "What do <think>this</think> and <|tool_calls_section_begin|> mean?"
    )


def test_calls_that_a_request_forbids_and_calls_of_strict_tools() -> None:
    forced = {one.case.name: one for one in asked("forced", "qwen3_xml").asked}
    forbidden, strict = forced["call, none"], forced["call, strict"]
    assert (forbidden.case.choice, forbidden.uncalled, forbidden.meaning) == ("none", True, None)
    assert forbidden.case.text == strict.case.text
    assert strict.case.choice == "auto"
    assert all(tool["function"]["strict"] for tool in strict.case.tools)
    assert not any('"parameters"' in text for text in strict.case.instead)
