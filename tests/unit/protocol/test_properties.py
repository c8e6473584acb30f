"""Properties of all streams: rendered streams are clean, chunking does not matter, accumulators agree."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vllm_harness._protocol import (
    ChatAccumulator,
    MessageAccumulator,
    ResponseAccumulator,
    compare_responses,
    compare_stream,
    parse_sse,
    validate_body,
    validate_stream,
)
from vllm_harness._protocol.chat import render as chat_render
from vllm_harness._protocol.core.events import Json
from vllm_harness._protocol.core.examples import as_sse, edited
from vllm_harness._protocol.messages import render as messages_render
from vllm_harness._protocol.responses import render

TEXT = st.text(max_size=40)
NAMES = st.text("abcdefgh_", min_size=1, max_size=12)
ARGUMENTS = st.dictionaries(NAMES, st.one_of(TEXT, st.integers(), st.booleans(), st.none()), max_size=3).map(
    lambda value: json.dumps(value, ensure_ascii=False)
)
RELAXED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def splits(draw: st.DrawFn) -> Any:
    """Draws a function that splits a text into deltas."""
    size = draw(st.integers(1, 7))
    return lambda text: [text[at : at + size] for at in range(0, len(text), size)]


def _part(text: str, annotations: list[Json]) -> Json:
    return {"type": "output_text", "text": text, "annotations": annotations, "logprobs": []}


ANNOTATIONS = st.lists(st.builds(lambda url: {"type": "url_citation", "url": url}, TEXT), max_size=2)
PARTS = st.one_of(
    st.builds(_part, TEXT, ANNOTATIONS), st.builds(lambda text: {"type": "refusal", "refusal": text}, TEXT)
)
_MCP_CALL = {"type": "mcp_call", "status": "completed", "server_label": "s", "name": "n"}
_PATCH = {"type": "apply_patch_call", "status": "completed"}
ITEMS = st.one_of(
    st.builds(lambda parts: {**render.message(""), "content": parts}, st.lists(PARTS, max_size=3)),
    st.builds(render.reasoning, text=TEXT, summary=st.lists(TEXT, max_size=2)),
    st.builds(render.function_call, ARGUMENTS, name=NAMES),
    st.builds(lambda text, name: {"type": "custom_tool_call", "name": name, "input": text}, TEXT, NAMES),
    st.builds(
        lambda arguments: {
            "type": "mcp_call",
            "status": "completed",
            "server_label": "s",
            "name": "n",
            "arguments": arguments,
        },
        ARGUMENTS,
    ),
    st.just({"type": "mcp_list_tools", "server_label": "s", "tools": []}),
    st.just({"type": "web_search_call", "status": "completed", "action": {"type": "search"}}),
    st.just({"type": "file_search_call", "status": "completed", "queries": ["q"], "results": None}),
    st.just({"type": "image_generation_call", "status": "completed", "result": "aGk="}),
    st.builds(lambda code: {"type": "code_interpreter_call", "status": "completed", "code": code}, TEXT),
    st.builds(
        lambda commands: {"type": "shell_call", "status": "completed", "action": {"commands": commands}},
        st.lists(TEXT, min_size=1, max_size=2),
    ),
    st.builds(
        lambda diff: {
            "type": "apply_patch_call",
            "status": "completed",
            "operation": {"type": "update", "diff": diff},
        },
        TEXT,
    ),
    st.just({"type": "compaction", "encrypted_content": "x"}),
    st.just({"type": "mcp_approval_request", "server_label": "s", "name": "n", "arguments": "{}"}),
)


def _with_ids(items: list[Json]) -> list[Json]:
    calls = {"function_call", "custom_tool_call", "shell_call", "apply_patch_call"}
    return [
        {**item, "id": f"item_{number}", **({"call_id": f"call_{number}"} if item["type"] in calls else {})}
        for number, item in enumerate(items)
    ]


RESPONSES = st.lists(ITEMS, max_size=5).map(_with_ids)
CALLS = st.one_of(
    st.builds(
        lambda name, arguments: {"type": "function", "function": {"name": name, "arguments": arguments}},
        NAMES,
        ARGUMENTS,
    ),
    st.builds(lambda name, text: {"type": "custom", "custom": {"name": name, "input": text}}, NAMES, TEXT),
)


def _chat_message(content: str, reasoning: str, calls: list[Json]) -> Json:
    message: Json = {"reasoning": reasoning} if reasoning else {}
    if calls:
        message["tool_calls"] = [{**call, "id": f"call_{number}"} for number, call in enumerate(calls)]
    return message if calls and not content else {**message, "content": content}


MESSAGES = st.lists(
    st.builds(_chat_message, st.text(max_size=20), st.text(max_size=20), st.lists(CALLS, max_size=3)),
    min_size=1,
    max_size=3,
)


@RELAXED
@given(RESPONSES, splits(), st.booleans())
def test_generated_responses_are_clean(items: list[Json], split: Any, background: bool) -> None:
    events = render.response_events(items, background=background, split=split)
    assert [str(finding) for finding in validate_stream(events)] == []
    assert [str(finding) for finding in validate_body(events[-1]["response"])] == []


@RELAXED
@given(RESPONSES, splits())
def test_accumulated_response_equals_the_terminal_event(items: list[Json], split: Any) -> None:
    events = render.response_events(items, split=split)
    accumulator = ResponseAccumulator()
    for event in events:
        accumulator.feed(event)
    assert accumulator.response == accumulator.terminal
    assert compare_stream(events, events[-1]["response"]) == []


@RELAXED
@given(MESSAGES, splits())
def test_generated_chat_streams_are_clean_and_add_up(messages: list[Json], split: Any) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    chunks = chat_render.completion_chunks(messages, usage=usage, split=split)
    assert [str(finding) for finding in validate_stream(chunks) if finding.counts] == []
    accumulator = ChatAccumulator()
    for chunk in chunks:
        accumulator.feed(chunk)
    body = chat_render.completion(messages, usage=usage)
    assert compare_responses(accumulator.completion, body) == []
    assert [str(finding) for finding in validate_body(body) if finding.counts] == []


INPUTS = st.dictionaries(NAMES, st.one_of(TEXT, st.integers(), st.booleans(), st.none()), max_size=3)
BLOCKS = st.one_of(
    st.builds(messages_render.text, TEXT),
    st.builds(messages_render.thinking, TEXT),
    st.builds(messages_render.tool_use, INPUTS, name=NAMES),
)


@RELAXED
@given(st.lists(BLOCKS, max_size=5), splits())
def test_generated_messages_are_clean_and_add_up(blocks: list[Json], split: Any) -> None:
    content = [
        {**block, "id": f"toolu_{number}"} if block["type"] == "tool_use" else block
        for number, block in enumerate(blocks)
    ]
    events = messages_render.answer_events(content, split=split)
    assert [str(finding) for finding in validate_stream(events)] == []
    assert [str(finding) for finding in validate_stream(parse_sse([as_sse(events).encode()]))] == []
    accumulator = MessageAccumulator()
    for event in events:
        accumulator.feed(event)
    body = messages_render.answer(content)
    assert compare_responses(accumulator.message, body, same_answer=True) == []
    assert compare_stream(events, body) == []
    assert [str(finding) for finding in validate_body(body)] == []


@RELAXED
@given(
    RESPONSES,
    st.lists(st.integers(1, 60), min_size=1, max_size=40),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from([None, "drop", "set"]),
)
def test_any_chunking_gives_the_same_findings(
    items: list[Json], sizes: list[int], newline: str, fault: str | None
) -> None:
    events = render.response_events(items)
    if fault == "drop":
        events = edited(events, [("drop", len(events) // 2)])
    elif fault == "set":
        events = edited(events, [("set", -1, "response.id", "x")])
    wire = as_sse(events).replace("\n", newline).encode()
    whole = list(parse_sse([wire]))
    chunks, at = [], 0
    while at < len(wire):
        size = sizes[len(chunks) % len(sizes)]
        chunks.append(wire[at : at + size])
        at += size
    assert list(parse_sse(chunks)) == whole
    assert validate_stream(parse_sse(chunks)) == validate_stream(whole)


@RELAXED
@given(st.binary(max_size=200), st.lists(st.integers(1, 9), min_size=1, max_size=20))
def test_any_bytes_in_any_chunks_give_the_same_events(noise: bytes, sizes: list[int]) -> None:
    wire = b"data: a\n\n" + noise + b"\n\ndata: b\r\n\r\n"
    chunks, at = [], 0
    while at < len(wire):
        size = sizes[len(chunks) % len(sizes)]
        chunks.append(wire[at : at + size])
        at += size
    assert list(parse_sse(chunks)) == list(parse_sse([wire]))
