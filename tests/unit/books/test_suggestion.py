"""The rule that is suggested for an unanswered request matches that request and passes the check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.unit.books.served import facts, outcome, served
from vllm_harness._configuration.model_entries import load_models
from vllm_harness._scripted.book import BookRule
from vllm_harness._scripted.book_check import check_book
from vllm_harness._scripted.meaning import Meaning
from vllm_harness._scripted.suggestion import ANSWER, example, suggestion

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 2},
        "unit": {"enum": ["C", "F"]},
        "where": {"$ref": "#/$defs/place"},
        "tags": {"type": "array", "items": {"type": ["string", "null"]}, "minItems": 2},
        "exact": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        "left out": {"type": "number"},
    },
    "required": ["city", "days", "unit", "where", "tags", "exact"],
    "$defs": {
        "place": {"type": "object", "properties": {"x": {"type": "number"}}, "additionalProperties": False}
    },
}
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
FUNCTION = {"name": "get_weather", "parameters": SCHEMA}
AFTER_A_CALL = [
    {"role": "user", "content": "Weather?"},
    {
        "role": "assistant",
        "tool_calls": [{"id": "1", "function": {"name": "get_weather", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "1", "content": "18 degrees (sunny)"},
]
REQUESTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "text": (RESPONSES, {"input": "What is 2 + 2? (think)\n" + "long " * 40}, "text"),
    "nothing": (RESPONSES, {}, "text"),
    "a tool": (
        CHAT,
        {"messages": AFTER_A_CALL[:1], "tools": [{"type": "function", "function": FUNCTION}]},
        "call",
    ),
    "a named tool": (
        MESSAGES,
        {
            "messages": AFTER_A_CALL[:1],
            "tools": [{"name": "other"}, {"name": "get_weather", "input_schema": SCHEMA}],
            "tool_choice": {"type": "tool", "name": "get_weather"},
        },
        "constrained call",
    ),
    "no tool": (RESPONSES, {"input": "x", "tools": [FUNCTION], "tool_choice": "none"}, "text"),
    "a result": (
        CHAT,
        {"messages": AFTER_A_CALL, "tools": [{"type": "function", "function": FUNCTION}]},
        "text",
    ),
    "a schema": (
        RESPONSES,
        {"input": "x", "text": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        "json",
    ),
    "a chat schema": (
        CHAT,
        {"messages": [], "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
        "json",
    ),
    "JSON": (RESPONSES, {"input": "x", "text": {"format": {"type": "json_object"}}}, "json"),
}


@pytest.mark.parametrize(("path", "body", "kind"), REQUESTS.values(), ids=REQUESTS)
def test_the_rule_matches_its_request(path: str, body: dict[str, Any], kind: str, tmp_path: Path) -> None:
    request = facts(path, body)
    file = tmp_path / "book.yaml"
    file.write_text("rules:\n" + suggestion({"number": 7, "body": body, **request}))
    book = check_book(file, load_models().get("qwen3"))
    assert book.lines() == []
    assert outcome(served(book.rules), request) == "request 7"
    assert outcome(served(book.rules), facts(path, {"input": "something else"})) != "request 7" or not body
    assert _kind(book.rules[0]) == kind


def _kind(rule: BookRule) -> str:
    (take,) = rule.takes
    assert isinstance(take, Meaning)
    constrained = "constrained " if rule.constrained else ""
    if take.calls:
        Draft202012Validator(SCHEMA).validate(take.calls[0].arguments)
        return f"{constrained}call"
    return "text" if take.text == ANSWER else "json" if constrained else take.text


def test_an_example_fits_its_schema() -> None:
    Draft202012Validator(SCHEMA).validate(example(SCHEMA))
    assert example({}) == "text"
    assert example({"$ref": "#/none"}) == "text"
    assert example({"const": 3}) == 3
