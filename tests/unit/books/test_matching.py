"""Conditions have the same meaning for requests over all APIs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.books.served import conversations, facts, outcome, served
from vllm_harness._scripted.book import BookRule
from vllm_harness._scripted.when import When

RESPONSES, CHAT, MESSAGES = "/v1/responses", "/v1/chat/completions", "/v1/messages"
ARGUMENTS = '{"city": "Paris"}'
CHOICE = "tool_choice"
# the same conversation: system prompt, question, reasoning and two calls, their results, a further question
CONVERSATION: dict[str, dict[str, Any]] = {
    RESPONSES: {
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "call_id": "a", "name": "get_weather", "arguments": ARGUMENTS},
            {"type": "function_call", "call_id": "b", "name": "find_hotel", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "b", "output": "Hôtel du Nord"},
            {
                "type": "function_call_output",
                "call_id": "a",
                "output": [{"type": "input_text", "text": "sunny"}],
            },
            {"role": "user", "content": "And?"},
        ],
        "tools": [{"type": "function", "name": "get_weather"}, {"type": "mcp", "server_label": "files"}],
        CHOICE: "required",
        "parallel_tool_calls": False,
        "text": {"format": {"type": "json_schema", "name": "x", "schema": {}}},
    },
    CHAT: {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "a",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": ARGUMENTS},
                    },
                    {"id": "b", "type": "function", "function": {"name": "find_hotel", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "b", "content": "Hôtel du Nord"},
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "sunny"}]},
            {"role": "user", "content": "And?"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "get_weather"}},
            {"type": "function", "function": {"name": "files"}},
        ],
        CHOICE: "required",
        "parallel_tool_calls": False,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
    },
    MESSAGES: {
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm."},
                    {"type": "tool_use", "id": "a", "name": "get_weather", "input": {"city": "Paris"}},
                    {"type": "tool_use", "id": "b", "name": "find_hotel", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "b", "content": "Hôtel du Nord"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "a",
                        "content": [{"type": "text", "text": "sunny"}],
                    },
                    {"type": "text", "text": "And?"},
                ],
            },
        ],
        "tools": [{"name": "get_weather", "input_schema": {}}, {"name": "files", "input_schema": {}}],
        CHOICE: {"type": "any", "disable_parallel_tool_use": True},
        "output_config": {"format": {"type": "json_schema", "schema": {}}},
    },
}
HOLD: list[dict[str, Any]] = [
    {"user": r"^And\?$"},
    {"system": "^Be brief.$"},
    {"message": {"role": "user", "text": "^Weather"}},
    {"message": {"text": "brief|Weather"}},
    {"message": {"role": "tool", "text": "^sunny$"}},
    {"tool_output": "^Hôtel du Nord\nsunny$"},
    {"tool_result": {"name": "get_weather", "arguments": r'"city": "Paris"', "output": "^sunny$"}},
    {"tool_result": {"output": "Nord"}},
    {"turn": 1},
    {"tools": ["files", "get_weather"]},
    {"tool_choice": "required"},
    {"parallel_tool_calls": False},
    {"stream": False},
    {"format": ["text", "json_schema"]},
    {"header": {"X-Test": "^abc$"}},
    {"all": [{"user": "And"}, {"turn": 1}]},
    {"any": [{"user": "Weather"}, {"system": "brief"}]},
    {"not": {"user": "Weather"}},
    {"not": {"user": "And", "turn": 0}},
]
FAIL: list[dict[str, Any]] = [
    {"user": "Weather"},
    {"system": "Weather"},
    {"message": {"role": "assistant", "text": "Weather"}},
    {"tool_output": "^sunny"},
    {"tool_result": {"name": "find_hotel", "output": "sunny"}},
    {"tool_result": {"name": "find_hotel", "arguments": "Paris"}},
    {"turn": 2},
    {"tools": ["find_hotel"]},
    {"tool_choice": "auto"},
    {"parallel_tool_calls": True},
    {"stream": True},
    {"format": "text"},
    {"api": "completions"},
    {"model": "^gpt"},
    {"header": {"x-test": "^b"}},
    {"header": {"x-other": ""}},
    {"all": [{"user": "And"}, {"turn": 0}]},
    {"any": [{"user": "Weather"}, {"turn": 0}]},
    {"not": {"user": "And"}},
]


def rule(name: str, when: dict[str, Any] | None = None, **more: Any) -> BookRule:
    """Makes a rule with these conditions."""
    return BookRule(name, ("answer",), when=When.model_validate(when or {}), **{"times": None, **more})


@pytest.mark.parametrize("path", CONVERSATION)
def test_a_conversation_has_the_same_meaning_over_every_api(path: str) -> None:
    request = facts(path, CONVERSATION[path], {"x-test": "abc"})
    for when in HOLD:
        assert outcome(served([rule("it", when)]), request) == "it", when
    for when in FAIL:
        reason = outcome(served([rule("it", when)]), request)
        assert reason.startswith(f"the nearest rule is 'it', which has {next(iter(when))}: "), when


def test_defaults_of_the_apis_apply() -> None:
    bare = facts(CHAT, {"messages": []})
    assert (bare["tool_choice"], bare["parallel_tool_calls"], bare["format"]) == ("none", True, "text")
    assert facts(CHAT, {"tools": [{"type": "function"}]})["tool_choice"] == "auto"
    named = {"type": "function", "function": {"name": "get_weather"}}
    assert facts(CHAT, {CHOICE: named})["tool_choice"] == "get_weather"
    assert facts(MESSAGES, {CHOICE: {"type": "tool", "name": "get_weather"}})["tool_choice"] == "get_weather"


@pytest.mark.parametrize(
    "body",
    [
        {"input": 7, "tools": "x", "tool_choice": 3, "text": "t", "instructions": 4},
        {"messages": [None, 3, {"role": 7, "content": {"a": 1}}, {"role": "user", "tool_calls": 3}]},
        {"input": [{"type": "function_call"}, {"type": "function_call_output", "call_id": {}}]},
    ],
)
def test_malformed_requests_raise_no_error(body: dict[str, Any]) -> None:
    assert facts(RESPONSES, body)["api"] == "responses"


def test_the_nearest_rule_fails_the_fewest_conditions() -> None:
    rules = [
        rule("far", {"user": "x", "turn": 3}),
        rule("near", {"user": "Paris", "turn": 0, "tools": ["get_weather"]}),
        rule("equally near, with fewer conditions", {"user": "x"}),
    ]
    reason = outcome(served(rules), facts(RESPONSES, {"input": "Paris?"}))
    assert reason == (
        "the nearest rule is 'near', which has tools: [\"get_weather\"] "
        "(it does not offer get_weather; it offers no tools)"
    )


def test_a_reset_revives_a_rule_that_is_used_up() -> None:
    book = served([rule("other", {"user": "no"}), rule("twice", times=2)])
    request = facts(RESPONSES, {"input": "hi"})
    assert [outcome(book, request) for _ in range(2)] == ["twice", "twice"]
    assert outcome(book, request) == "the nearest rule is 'twice', which has times: 2 (all used)"
    book.reset()
    assert outcome(book, request) == "twice"


def test_a_case_decides_whether_a_rule_takes_a_request() -> None:
    when = When(user="capital of (?P<country>.+)")
    closed = BookRule("closed", (), when=when, case="country", of={"Norway": "Oslo"}, times=None)
    opened = BookRule("open", ("?",), when=when, case="country", of={"Norway": "Oslo"}, times=None)
    france = facts(RESPONSES, {"input": "capital of France"})
    assert outcome(served([closed]), facts(RESPONSES, {"input": "capital of Norway"})) == "closed"
    assert outcome(served([closed]), france).endswith(
        "say: case country is 'France', but `of` has only Norway"
    )
    assert outcome(served([closed, opened]), france) == "open"


def stored(identifier: str, *output: dict[str, Any]) -> dict[str, Any]:
    """Makes a response as vLLM sends it."""
    return {"object": "response", "id": identifier, "output": list(output)}


def test_stored_responses_are_part_of_the_conversation() -> None:
    responses = conversations.Responses()
    call = {"type": "function_call", "call_id": "a", "name": "get_weather", "arguments": ARGUMENTS}
    responses.keep({"input": "Weather?"}, stored("resp_1", {"type": "reasoning"}, call))
    output = {"type": "function_call_output", "call_id": "a", "output": "sunny"}
    second = {"previous_response_id": "resp_1", "input": [output]}
    request = facts(RESPONSES, second, earlier=responses.before(second))
    assert request["turn"] == 1
    assert request["tool_results"] == [{"name": "get_weather", "arguments": ARGUMENTS, "output": "sunny"}]
    responses.keep(second, stored("resp_2"))  # a background response that has no output yet
    third = {"previous_response_id": "resp_2", "input": "And?"}
    assert facts(RESPONSES, third, earlier=responses.before(third))["turn"] == 2
    responses.keep(
        {}, stored("resp_2", {"role": "assistant", "content": [{"type": "output_text", "text": "Sun."}]})
    )
    known = facts(RESPONSES, third, earlier=responses.before(third))
    assert (known["turn"], known["messages"][-2]) == (2, ("assistant", "Sun."))
    assert responses.before({"previous_response_id": "resp_unknown"}) == []


def test_responses_are_found_in_bodies_and_streams_in_chunks_of_any_size() -> None:
    created = b'event: response.created\ndata: {"response":{"object":"response","id":"a"}}'
    delta = b'\n\ndata: {"type":"response.output_text.delta","delta":"\\"response\\":{}"}\n\n'
    body = b'{"object": "response", "id": "b"}'
    for content, expected in (
        (created + delta, ["a"]),
        (body, ["b"]),
        (b'{"object": "chat.completion"}', []),
    ):
        for size in (1, 7, 1000):
            reader = conversations.ResponseReader()
            chunks = [content[i : i + size] for i in range(0, len(content), size)]
            ids = [
                response["id"]
                for number, chunk in enumerate(chunks, start=1)
                for response in reader.feed(chunk, last=number == len(chunks))
            ]
            assert ids == expected
