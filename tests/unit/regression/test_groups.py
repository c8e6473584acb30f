"""The test cases of a parser family in each group."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from vllm_harness._regression.cases.case import GROUPS, CaseInput, CaseSet, Group, Topic
from vllm_harness._regression.cases.groups import case_set
from vllm_harness._regression.cases.malformed import TextChange, load_malformed, malformed_texts
from vllm_harness._regression.cases.marker_variants import marker_beginnings
from vllm_harness._regression.cases.meanings import load_meanings, marker_tokens
from vllm_harness._regression.engines.plan import DELIVERIES, Engine, plan_cases
from vllm_harness._scripted.families import load_families
from vllm_harness._scripted.meaning import Text
from vllm_harness.cli.main import app

ENGINES: tuple[Engine, ...] = ("in-process", "http")


def cases_of(group: Group, family: str, engine: Engine = "in-process") -> CaseSet:
    return plan_cases(case_set(group, load_families()[family], load_meanings()), engine)


def inputs(group: Group, family: str) -> dict[str, CaseInput]:
    return {case.name: case.input for case in cases_of(group, family).cases}


def test_a_change_replaces_the_last_or_first_match() -> None:
    last = TextChange.model_validate({"name": "any", "find": "(a)", "with": r"\1\1"})
    first = TextChange.model_validate({"name": "any", "find": "a", "with": "", "first": True})
    assert last.apply("banana") == "bananaa"
    assert first.apply("banana") == "bnana"
    assert last.apply("xyz") == "xyz"
    ends = TextChange.model_validate({"name": "any", "find": "{reasoning end}", "with": ""})
    assert ends.apply("a.b.", ".b") == "a."
    assert ends.apply("a.b.") == "a.b."


@pytest.mark.parametrize(
    "family", [name for name, each in load_families().items() if each.form and each.tool_parser]
)
def test_every_family_has_malformed_texts(family: str) -> None:
    texts = list(malformed_texts(load_families()[family]))
    changes = {text.name.partition(", ")[2] for text in texts if not text.truncated}
    assert len(changes) >= 8
    assert any(text.truncated for text in texts)
    assert len({text.name for text in texts}) == len(texts)


def test_changes_use_the_reasoning_end_of_the_family() -> None:
    texts = {text.name: text.text for text in malformed_texts(load_families()["kimi_k2"])}
    reasoning = "<think>Let me think."
    assert texts["reasoning and call, thoughts end twice"].startswith(
        f"{reasoning}</think></think><|tool_calls"
    )
    after = texts["reasoning and call, thoughts end after the call"]
    assert after.startswith(f"{reasoning}<|tool_calls")
    assert after.endswith("<|tool_calls_section_end|></think><|im_end|>")
    assert "call, thoughts end twice" not in texts


def test_a_text_beyond_the_format_may_not_be_lost() -> None:
    texts = {text.name: text for text in malformed_texts(load_families()["llama3_json"])}
    beside = texts["text and call, beyond the format"]
    assert beside.text.startswith('I will check.\n{"name": "get_weather"')
    assert beside.words == beside.values == {"I will check.", "Paris"}
    assert texts["two calls, beyond the format"].text.count("; ") == 1
    assert not any("beyond" in text.name for text in malformed_texts(load_families()["hermes"]))


def test_a_malformed_text_has_the_functions_that_it_calls() -> None:
    names = {text.name: text.functions for text in malformed_texts(load_families()["hermes"])}
    assert names["call, cut off"] == {"get_weather"}
    assert names["call, name unknown"] == {"get_weather", "no_such_function"}


def test_ids_in_a_text_are_expected() -> None:
    ids = {name: input_.call_ids for name, input_ in inputs("canonical", "kimi_k2").items()}
    assert ids["two calls"] == ("functions.get_weather:0", "functions.get_time:1")
    assert ids["text"] == ()
    assert not any(input_.call_ids for input_ in inputs("canonical", "hermes").values())


def test_every_change_applies_to_a_family() -> None:
    applied = {
        text.name.partition(", ")[2]
        for family in load_families().values()
        for text in malformed_texts(family)
    }
    assert {change.name for change in load_malformed().changes} <= applied


def test_only_markers_that_are_tokens_are_spelled() -> None:
    def spelled(family: str) -> list[bool]:
        return [input_.markers_spelled for input_ in inputs("chunks", family).values()]

    assert any(spelled("qwen3_coder"))
    assert not any(spelled("pythonic"))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "group",
    [pytest.param(name, marks=pytest.mark.extra("costs")) if name == "cost" else name for name in GROUPS],
)
def test_names_are_unique_and_deliveries_match_the_engine(group: Group, engine: Engine) -> None:
    found = cases_of(group, "hermes", engine).cases
    assert bool(found) == (group in DELIVERIES[engine])
    assert len({case.name for case in found}) == len(found)
    assert all(case.input.deliveries for case in found)
    assert all(
        (delivery.api is not None) == (engine == "http")
        for case in found
        for delivery in case.input.deliveries
    )


def test_truncated_texts_are_not_run_over_http() -> None:
    assert any(input_.truncated for input_ in inputs("malformed", "hermes").values())
    assert not any(case.input.truncated for case in cases_of("malformed", "hermes", "http").cases)


def test_a_family_may_show_its_reasoning_in_the_text() -> None:
    found = {case.name: case for case in cases_of("canonical", "minimax_m2_append_think").cases}
    meaning = found["reasoning and text"].expected.meaning
    assert meaning is not None
    assert meaning.parts == (Text("<think>Let me think.\n</think>\n\nHello there."),)


def test_a_marker_in_a_string_is_spelled_with_ordinary_tokens() -> None:
    found = inputs("canonical", "hermes")
    case = found["call, </tool_call> in a string"]
    ((start, end),) = case.spelled_spans
    assert case.text[start:end] == "</tool_call>"
    assert case.pieces == [case.text[:start], *"</tool_call>", case.text[end:]]
    assert found["call"].pieces == [found["call"].text]


def test_inexpressible_markers_are_left_out() -> None:
    found = cases_of("canonical", "glm47")
    assert "call, </arg_value> in a string" in found.left_out
    assert "call, <arg_value> in a string" in {case.name for case in found.cases}


def test_a_special_token_is_a_case_if_the_request_skips_them() -> None:
    def with_special_token(family: str) -> set[str]:
        found = cases_of("canonical", family).cases
        return {case.name for case in found if case.topic is Topic.SPECIAL_TOKEN}

    assert with_special_token("kimi_k2") == {"text, special token", "reasoning and text, special token"}
    assert with_special_token("hermes") == {"text, special token"}
    assert "skip_special_tokens" in load_families()["inkling"].request
    assert not with_special_token("inkling")


def test_a_forced_call_has_alternative_texts() -> None:
    found = inputs("forced", "qwen3_json")
    required, named = found["reasoning and call, required"], found["reasoning and call, named"]
    assert (required.tool_choice, named.tool_choice) == ("required", "get_weather")
    assert [tool["function"]["name"] for tool in named.tools] == ["get_time", "get_weather"]
    free = "<think>\nLet me think.\n</think>"
    assert all(text.startswith(free) for text in (required.text, *required.alternatives))
    assert {text.removeprefix(free) for text in named.alternatives} >= {
        '{"city": "Paris", "days": 3}<|im_end|>',
        '[{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}]<|im_end|>',
    }


def test_a_forced_call_rules_out_text_and_other_functions() -> None:
    found = cases_of("forced", "hermes").cases
    barred = {case.name: case.input for case in found if case.expected.refused}
    assert {name: case.tool_choice for name, case in barred.items()} == {
        "text, required": "required",
        "another function, named": "get_time",
    }
    assert not any(case.alternatives for case in barred.values())


def test_a_server_runs_fewer_forced_calls() -> None:
    served, parsed = (cases_of("forced", "hermes", engine).cases for engine in ENGINES[::-1])
    names = {case.name for case in served}
    assert names < {case.name for case in parsed}
    assert {"call, required", "call, named", "text, required"} <= names


def test_some_prompts_quote_markers() -> None:
    found = inputs("canonical", "kimi_k2")
    quoted = {name: input_.user_message for name, input_ in found.items() if input_.user_message}
    assert set(quoted) == {
        f"{name}, markers in the prompt" for name in ("call", "reasoning and text", "reasoning and call")
    }
    assert quoted["call, markers in the prompt"] == (
        "What do <think>this</think> and <|tool_calls_section_begin|> mean?"
    )


def test_forbidden_calls_and_strict_tools() -> None:
    forced = {case.name: case for case in cases_of("forced", "qwen3_xml").cases}
    forbidden, strict = forced["call, none"], forced["call, strict"]
    assert forbidden.input.tool_choice == "none"
    assert (forbidden.expected.calls_allowed, forbidden.expected.meaning) == (False, None)
    assert forbidden.input.text == strict.input.text
    assert strict.input.tool_choice == "auto"
    assert all(tool["function"]["strict"] for tool in strict.input.tools)
    assert not any('"parameters"' in text for text in strict.input.alternatives)


def test_families_and_cases_are_listed_as_json() -> None:
    output = CliRunner().invoke(app, ["regression", "families", "--json"])
    records = {record["name"]: record for record in json.loads(output.stdout)}
    assert records.keys() == load_families().keys()
    assert records["qwen3_json"]["reasoning_parser"] == "qwen3"
    assert records["openai"]["engines"] == ["in-process", "http"]
    assert all(record["source"] for record in records.values())
    command = ["regression", "cases", "--parsers", "kimi_k2_instruct", "--cases", "canonical", "--json"]
    cases = {case["name"]: case for case in json.loads(CliRunner().invoke(app, command).stdout)}
    assert cases["call"]["expected"]["message"]["calls"] == [
        {"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}
    ]
    assert cases["call"]["deliveries"][:2] == ["whole", "tokens_1"]


def test_marker_beginnings_contain_no_whole_marker() -> None:
    hermes = marker_beginnings(load_families()["hermes"])
    assert hermes["<tool_call>"] == tuple("<tool_call>"[:length] for length in range(1, 11))
    assert "<think>" not in hermes  # no reasoning parser
    assert marker_beginnings(load_families()["kimi_k3"])["<|open|>tools<|sep|>"][-1] == "<|open|"
    assert marker_beginnings(load_families()["pythonic"]) == {}


@pytest.mark.parametrize("family", [name for name, each in load_families().items() if each.form])
def test_marker_variants_are_plain_content(family: str) -> None:
    found = cases_of("look-alikes", family)
    cases = {case.name: case for case in found.cases}
    variant = cases["text with a word in brackets"]
    assert variant.expected.meaning is not None
    assert "[draft]" in variant.expected.meaning.text
    tokens = marker_tokens(load_families()[family])
    ends = [case.input.text for name, case in cases.items() if name.startswith("text that ends with")]
    plain = cases["text with a list of numbers"].input.text
    before = {token: plain.count(token) for token in tokens}
    alone = [text for text in ends if not any(text.count(token) > before[token] for token in tokens)]
    assert len(alone) >= len(ends) - 4  # except the texts before a call
