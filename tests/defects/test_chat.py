"""Chat Completions: finish reasons, and parser defects that show in answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.defects.wire import CHAT_TOOL, NO_SCRIPT, Json, Wire, message_of, refused
from vllm_harness._scripted.book import Raw
from vllm_harness._scripted.meaning import ToolCall
from vllm_harness._testing.checks import StreamCheck
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_scripted, pytest.mark.vllm_needs("chat")]

CALL = ToolCall("get_weather", {"city": "Paris"})
NAMED = {"type": "function", "function": {"name": "get_weather"}}


def finish_of(chunks: list[Json]) -> str:
    """Returns the only finish_reason of a stream."""
    (reason,) = {c["choices"][0]["finish_reason"] for c in chunks if c["choices"]} - {None}
    return str(reason)


def calls_of(chunks: list[Json]) -> list[Json]:
    """Returns the tool call deltas of a stream."""
    return [d for c in chunks if c["choices"] for d in c["choices"][0]["delta"].get("tool_calls") or []]


@pytest.mark.covers("vllm-53269", "vllm-47963")
@pytest.mark.vllm_needs("tools")
def test_cut_call_streams_length(wire: Wire, script: ScriptWriter) -> None:
    """This defect no longer reproduces. Source: API reference, finish_reason `length`."""
    script(calls=[ToolCall("get_weather", {"city": "Paris, " * 40})], expect="truncated")
    assert finish_of(wire.chat_stream("Weather?", tools=[CHAT_TOOL], max_tokens=40)) == "length"


@pytest.mark.covers("vllm-47761")
@pytest.mark.vllm_needs("tools")
def test_cut_call_may_come_back(wire: Wire, script: ScriptWriter) -> None:
    """A history with a truncated call is accepted, or refused with an error object; never a 5xx."""
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Pa'}}
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "bad arguments"},
    ]
    answer = wire.post("chat/completions", messages=messages, tools=[CHAT_TOOL])
    assert NO_SCRIPT in answer.text or refused(answer)


@pytest.mark.covers("vllm-18412", "vllm-14951", "vllm-18108", "vllm-9693")
@pytest.mark.vllm_standard
@pytest.mark.vllm_model("qwen3")
@pytest.mark.parametrize("choice", ["auto", "required", NAMED], ids=["auto", "required", "named"])
def test_id_and_name_of_a_call_come_once(
    choice: Any, wire: Wire, script: ScriptWriter, check_stream: StreamCheck
) -> None:
    """This defect no longer reproduces. Source: API reference, chunk objects."""
    script(calls=[CALL], constrained=choice != "auto", times=2)
    request: Json = {"tools": [CHAT_TOOL], "tool_choice": choice}
    (call,) = message_of(wire.chat("Weather?", **request))["tool_calls"]
    chunks = wire.chat_stream("Weather?", **request)
    check_stream(chunks)
    deltas = calls_of(chunks)
    assert [delta["id"] for delta in deltas if delta.get("id")] == [deltas[0]["id"]]
    assert [n for d in deltas if (n := d["function"].get("name"))] == ["get_weather"]
    assert "".join(d["function"].get("arguments") or "" for d in deltas) == call["function"]["arguments"]


@pytest.mark.covers("vllm-53975")
@pytest.mark.vllm_standard
@pytest.mark.parametrize(
    "removed",
    [{"guided_choice": ["yes"]}, {"guided_json": {"type": "object"}}, {"guided_regex": "yes"}],
    ids=["choice", "json", "regex"],
)
@pytest.mark.vllm_known_defect("vllm-53975")
def test_removed_constraint_is_not_ignored_in_silence(removed: Json, wire: Wire) -> None:
    """OpenAI's API refuses unknown parameters; vLLM must not ignore parameters that constrain the model."""
    refused(wire.post("chat/completions", messages=[{"role": "user", "content": "Yes?"}], **removed))


@pytest.mark.covers("vllm-40466")
@pytest.mark.vllm_standard
@pytest.mark.vllm_model("qwen3")
@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
def test_without_thinking_all_is_content(stream: bool, wire: Wire, script: ScriptWriter) -> None:
    """This no longer happens: the whole stream came as reasoning when the request switched thinking off."""
    script(Raw("The answer.<|im_end|>"))
    request: Json = {"chat_template_kwargs": {"enable_thinking": False}}
    if stream:
        deltas = [c["choices"][0]["delta"] for c in wire.chat_stream("Go", **request) if c["choices"]]
        content = "".join(delta.get("content") or "" for delta in deltas)
        assert not any(delta.get("reasoning") for delta in deltas)
    else:
        message = message_of(wire.chat("Go", **request))
        content = message["content"]
        assert not message.get("reasoning")
    assert content == "The answer."


@pytest.mark.covers("vllm-47137")
@pytest.mark.vllm_known_defect("vllm-47903")
@pytest.mark.vllm_standard
@pytest.mark.vllm_model("qwen3")
def test_cut_opener_of_a_call_is_the_same_streamed_and_not(wire: Wire, script: ScriptWriter) -> None:
    """If the token limit cuts the opening tag of a call, the content is the same in body and stream."""
    script(Raw("<think>\n\n</think>\n\nWell. <tool_call>\n{<|im_end|>"), expect="truncated", times=2)
    request: Json = {"tools": [CHAT_TOOL], "max_tokens": 8}
    body = message_of(wire.chat("Weather?", **request))["content"]
    deltas = [c["choices"][0]["delta"] for c in wire.chat_stream("Weather?", **request) if c["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == body


@pytest.mark.covers("vllm-31683")
def test_errors_show_no_paths_of_the_server(wire: Wire) -> None:
    """This no longer happens: error messages contained file paths."""
    answer = wire.post("chat/completions", messages=[{"role": "user", "content": {"no": "text"}}])
    refused(answer)
    assert "site-packages" not in answer.text


@pytest.mark.covers("vllm-39929", "vllm-56086", "vllm-32006")
@pytest.mark.vllm_standard
@pytest.mark.vllm_model("qwen3")
def test_required_call_with_response_format(wire: Wire, script: ScriptWriter) -> None:
    """This no longer happens: the combination crashed the engine or was refused. The call has precedence."""
    script(calls=[CALL], constrained=True)
    completion = wire.chat(
        "Weather?", tools=[CHAT_TOOL], tool_choice="required", response_format={"type": "json_object"}
    )
    (call,) = message_of(completion)["tool_calls"]
    assert call["function"]["name"] == "get_weather"


@pytest.mark.covers("vllm-51641")
@pytest.mark.vllm_standard
@pytest.mark.vllm_model("qwen3")
def test_stop_string_does_not_move_reasoning(wire: Wire, script: ScriptWriter) -> None:
    """vLLM holds back text that may start a stop string; held-back reasoning must not become content."""
    script(Raw("<think>\nOne STO two.\n</think>\n\nThree STO four.<|im_end|>"), times=2)
    request: Json = {"stop": ["STOPPED HERE AND NOW"]}
    message = message_of(wire.chat("Go", **request))
    deltas = [c["choices"][0]["delta"] for c in wire.chat_stream("Go", **request) if c["choices"]]
    streamed = {
        part: "".join(delta.get(part) or "" for delta in deltas).strip() for part in ("reasoning", "content")
    }
    assert streamed == {"reasoning": "One STO two.", "content": "Three STO four."}
    assert {part: message[part].strip() for part in streamed} == streamed
