"""Servers with `--stream-interval`, where a delta has many tokens and so several kinds of output."""

from __future__ import annotations

from typing import Any

import pytest

from tests.defects.conftest import Talk
from tests.defects.wire import CHAT_TOOL, TOOL, Json, items, message_of, reasoning_of, terminal, text_of
from tests.own_server import OwnServer
from vllm_harness._scripted.book import Raw, ScriptBook
from vllm_harness._scripted.dialects import render
from vllm_harness._scripted.meaning import Meaning, ToolCall
from vllm_harness._testing.checks import StreamCheck

pytestmark = [pytest.mark.vllm_scripted, pytest.mark.vllm_needs("responses", "tools")]

STEPS = ["--stream-interval", "1000", "--max-model-len", "2048"]
PARIS = '{"city": "Paris"}'
ROME = '{"city": "Rome"}'


def hermes(*arguments: str, before: str = "", between: str = "\n", after: str = "") -> str:
    """Returns a turn with reasoning, calls and optional text, as qwen3 writes it."""
    calls = [
        f'<tool_call>\n{{"name": "get_weather", "arguments": {argument}}}\n</tool_call>'
        for argument in arguments
    ]
    return f"<think>\nHm.\n</think>\n\n{before}{between.join(calls)}{after}<|im_end|>"


def harmony(*arguments: str, before: str = "", between: str = "", after: str = "") -> str:
    """Returns a turn with reasoning, calls and optional text, as gpt-oss writes it."""
    header = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
    calls = [f"{header}{argument}" for argument in arguments]
    messages = ["<|channel|>analysis<|message|>Hm.", *_channel_message("commentary", before), calls[0]]
    for call in calls[1:]:
        messages += [*_channel_message("commentary", between), call]
    messages += _channel_message("final", after)
    return "<|end|><|start|>assistant".join(messages) + ("<|return|>" if after else "<|call|>")


def _channel_message(channel: str, words: str) -> list[str]:
    return [f"<|channel|>{channel}<|message|>{words}"] if words else []


CASES: dict[str, dict[str, str]] = {
    "one call": {"gpt-oss": harmony(PARIS), "qwen3": hermes(PARIS)},
    "two calls": {"gpt-oss": harmony(PARIS, ROME), "qwen3": hermes(PARIS, ROME)},
    "text before": {"gpt-oss": harmony(PARIS, before="So."), "qwen3": hermes(PARIS, before="So.\n")},
    "text after": {"gpt-oss": harmony(PARIS, after="Done."), "qwen3": hermes(PARIS, after=" Done.")},
    "text between": {
        "gpt-oss": harmony(PARIS, ROME, between="and"),
        "qwen3": hermes(PARIS, ROME, between="\nand\n"),
    },
    "no arguments": {"gpt-oss": harmony("{}"), "qwen3": hermes("{}")},
    "boolean last": {"gpt-oss": harmony('{"on": true}'), "qwen3": hermes('{"on": true}')},
}


def output_of(response: Json) -> dict[str, Any]:
    """Returns the content of a response without surrounding whitespace."""
    return {
        "reasoning": reasoning_of(response).strip(),
        "text": text_of(response).strip(),
        "calls": [(call["name"], call["arguments"]) for call in items(response, "function_call")],
    }


@pytest.mark.covers("vllm-55284", "vllm-27641", "vllm-33520", "vllm-42691", "vllm-19056", "vllm-36445")
@pytest.mark.vllm_model("gpt-oss", "qwen3")
@pytest.mark.parametrize("case", CASES)
def test_responses_stream_as_their_body(
    case: str, own_server: OwnServer, talk: Talk, check_stream: StreamCheck
) -> None:
    """Nothing is lost if reasoning, text and calls arrive in one delta, and the stream is well formed."""
    server = own_server(STEPS)
    with talk(server) as (book, wire):
        book.script(Raw(CASES[case][server.entry.name]), times=2)
        body = wire.respond("Weather?", tools=[TOOL])
        events = wire.stream("Weather?", tools=[TOOL])
    check_stream(events)
    assert output_of(terminal(events)) == output_of(body)
    assert output_of(body)["reasoning"] == "Hm."


@pytest.mark.covers("vllm-27641", "vllm-33520", "vllm-42691", "vllm-60351", "vllm-19056")
@pytest.mark.vllm_model("gpt-oss", "qwen3")
@pytest.mark.parametrize("case", CASES)
def test_chat_streams_as_its_body(
    case: str, own_server: OwnServer, talk: Talk, check_stream: StreamCheck
) -> None:
    """In Chat Completions, nothing is lost if reasoning, text and calls arrive in one delta."""
    server = own_server(STEPS)
    with talk(server) as (book, wire):
        book.script(Raw(CASES[case][server.entry.name]), times=2)
        body = message_of(wire.chat("Weather?", tools=[CHAT_TOOL]))
        chunks = wire.chat_stream("Weather?", tools=[CHAT_TOOL])
    check_stream(chunks)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    calls = [call for delta in deltas for call in delta.get("tool_calls") or []]
    by_index: dict[int, str] = {}
    for call in calls:
        by_index[call["index"]] = by_index.get(call["index"], "") + (call["function"].get("arguments") or "")
    for part in ("reasoning", "content"):
        assert "".join(d.get(part) or "" for d in deltas).strip() == (body.get(part) or "").strip()
    assert list(by_index.values()) == [call["function"]["arguments"] for call in body["tool_calls"]]


@pytest.mark.covers("vllm-60351")
@pytest.mark.vllm_model("qwen3")
def test_required_calls_in_one_step(own_server: OwnServer, talk: Talk) -> None:
    """This no longer happens: all but the last of several calls in one delta were lost."""
    calls = [ToolCall("get_weather", {"city": city}) for city in ("Paris", "Rome")]
    with talk(own_server(STEPS)) as (book, wire):
        # the grammar does not allow the newline between two calls
        rendered = render("qwen3", Meaning.of(calls=tuple(calls)), constrained=True)
        book.script(Raw(rendered.replace("</tool_call>\n", "</tool_call>")))
        response = terminal(wire.stream("Weather?", tools=[TOOL], tool_choice="required"))
    assert [call["arguments"] for call in items(response, "function_call")] == [PARIS, ROME]


@pytest.mark.covers("vllm-51641")
@pytest.mark.vllm_model("qwen3")
def test_stop_string_in_one_step(own_server: OwnServer, talk: Talk) -> None:
    """Text that is held back for a stop string stays in the reasoning or content to which it belongs."""
    with talk(own_server(STEPS)) as (book, wire):
        book.script(Raw("<think>\nOne STO\n</think>\n\nTwo STO<|im_end|>"))
        chunks = wire.chat_stream("Go", stop=["STOPPED HERE AND NOW"])
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("reasoning") or "" for delta in deltas).strip() == "One STO"
    assert "".join(delta.get("content") or "" for delta in deltas).strip() == "Two STO"


@pytest.mark.covers("vllm-38132")
@pytest.mark.vllm_model("qwen3", "gpt-oss")
def test_truncation_auto_truncates(own_server: OwnServer, talk: Talk) -> None:
    """Source: API reference: truncation `auto` drops input to fit the context; `disabled` gets a 400."""
    long = "word " * 3000
    server = own_server(STEPS)
    with talk(server) as (book, wire):
        ScriptBook(server.endpoint, server.entry, name=book.name).script("Fine.", name="unheard", times=None)
        refusal = wire.post("responses", input=long, truncation="disabled")
        response = wire.respond(long, truncation="auto", max_output_tokens=64)
    assert refusal.status_code == 400
    assert response["usage"]["input_tokens"] < 2048
