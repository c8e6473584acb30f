"""Tool-call quality: the calls in an answer, and how decisions to call agree with a reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_harness._errors import UsageError
from vllm_harness._testing.quality import (
    Agreement,
    ObservedRequest,
    QualityTally,
    agreement,
    fits,
    line,
    observe,
    read_reference,
    summary,
    write_reference,
)

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "name": "get_weather", "parameters": SCHEMA}
CHAT_TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
PARIS = '{"city": "Paris"}'


def chat(*arguments: str) -> bytes:
    """A chat completion with one call for each of these arguments."""
    calls = [{"function": {"name": "get_weather", "arguments": each}} for each in arguments]
    return json.dumps({"choices": [{"message": {"content": None, "tool_calls": calls}}]}).encode()


def responses(*arguments: str) -> bytes:
    """A response with one call for each of these arguments."""
    calls = [{"type": "function_call", "name": "get_weather", "arguments": each} for each in arguments]
    return json.dumps({"object": "response", "output": [{"type": "reasoning"}, *calls]}).encode()


def chat_stream() -> bytes:
    """A chat stream with one call in two chunks."""
    deltas: list[dict[str, Any]] = [
        {
            "tool_calls": [
                {"index": 0, "id": "c", "function": {"name": "get_weather", "arguments": '{"city"'}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": ': "Paris"}'}}]},
    ]
    chunks = [{"id": "x", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks) + b"data: [DONE]\n\n"


def responses_stream() -> bytes:
    """A Responses stream with one call."""
    item = {"type": "function_call", "id": "f", "call_id": "c", "name": "get_weather", "arguments": ""}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "f", "delta": PARIS},
        {"type": "response.output_item.done", "output_index": 0, "item": {**item, "arguments": PARIS}},
    ]
    return b"".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events)


@pytest.mark.parametrize(
    ("tool", "answer", "calls", "valid"),
    [
        (CHAT_TOOL, chat(PARIS), 1, 1),
        (CHAT_TOOL, chat(PARIS, '{"city": 3}'), 2, 1),
        (CHAT_TOOL, chat(), 0, 0),
        (CHAT_TOOL, chat_stream(), 1, 1),
        (TOOL, responses(PARIS, "{", "[]"), 3, 1),
        (TOOL, responses_stream(), 1, 1),
        (TOOL, b"Internal Server Error", 0, 0),
    ],
)
def test_calls_are_counted_and_checked(tool: dict[str, Any], answer: bytes, calls: int, valid: int) -> None:
    assert observe({"tools": [tool]}, 200, answer) == ObservedRequest(True, calls, valid)


@pytest.mark.parametrize(
    ("choice", "free"), [(None, True), ("auto", True), ("none", False), ("required", False), ({}, False)]
)
def test_only_a_free_choice_is_a_decision(choice: object, free: bool) -> None:
    observed = observe({"tools": [TOOL], "tool_choice": choice}, 200, responses(PARIS))
    assert observed == ObservedRequest(free, 1, 1)


def test_refusals_and_requests_without_tools_do_not_count() -> None:
    assert observe({"input": "hi"}, 200, responses()) is None
    assert observe({"tools": [TOOL]}, 400, b"{}") is None
    assert observe({"tools": [TOOL]}, 500, b"{}") == ObservedRequest(True, 0, 0)


def test_a_call_of_another_function_does_not_fit() -> None:
    assert not fits("other", "{}", {"get_weather": SCHEMA})
    assert fits("anything", '{"x": 1}', {"anything": None})


def tally(**decisions: list[list[bool]]) -> QualityTally:
    """A tally with these decisions to call."""
    return QualityTally(decisions=decisions)


def test_agreement() -> None:
    reference = {"a": [True, True], "b": [False], "c": [True], "gone": [True]}
    made = {"a": [[True, False], [True, True]], "b": [[True]], "c": [[True, True]], "new": [[False]]}
    # pairs: 4 of a (TP, TP, TP, FN), 1 of b (FP), 1 of c (TP); unpaired: 1 each of c, new and gone
    assert agreement(made, reference) == Agreement(6, 4 / 5, 4 / 5, pytest.approx(0.8), 3)


def test_agreement_without_calls() -> None:
    assert agreement({"a": [[False]]}, {"a": [False]}) == Agreement(1, None, None, None, 0)


def test_a_run_is_stored_and_compared(tmp_path: Path) -> None:
    made = tally()
    made.add("case", [ObservedRequest(True, 1, 1), ObservedRequest(False, 1, 0), ObservedRequest(True, 0, 0)])
    made.add("no tools", [])
    assert (made.calls, made.valid, made.decisions) == (2, 1, {"case": [[True, False]]})
    write_reference(tmp_path / "reference.json", {"target": "live-x"}, made)
    reference = read_reference(tmp_path / "reference.json")
    assert reference == {"case": [True, False]}
    summed = summary(made, reference)
    assert line(summed) == (
        "tool calls that fit their schema: 1 of 2; decision to call against the reference: "
        "precision 1.00, recall 1.00, f1 1.00 (2 decisions)"
    )
    assert summary(QualityTally(), reference) == {}


@pytest.mark.parametrize("text", ["", "[]", '{"decisions": 3}', "{}"])
def test_another_file_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(UsageError, match="not a file of tool-call decisions"):
        read_reference(tmp_path / "r.json")
