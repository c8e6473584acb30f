"""Known defects of vLLM, as they appear in its answers, and the codes of the rules that find them."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_harness._protocol import parse_sse, validate_body, validate_stream
from vllm_harness._protocol.core.events import Json, numbered
from vllm_harness._protocol.core.examples import Edit, edited
from vllm_harness._protocol.responses import render
from vllm_harness._protocol.samples import SAMPLES

THINK_AND_CALL = [render.reasoning("Let me think."), render.function_call('{"city":"Paris"}')]
STREAM = render.response_events(THINK_AND_CALL)
TRUNCATION: list[Edit] = [
    ("set", 0, "status", "incomplete"),
    ("set", 0, "incomplete_details", {"reason": "max_output_tokens"}),
]
BODY = render.response(THINK_AND_CALL)


def _codes(events: list[Json], **options: Any) -> set[str]:
    return {finding.code for finding in validate_stream(events, **options) if finding.counts}


def test_event_order_b_is_clean() -> None:
    assert _codes(STREAM) == set()


def test_event_order_a_has_no_part_for_its_reasoning() -> None:
    renamed = [{**event, "type": event["type"].replace("content_part", "reasoning_part")} for event in STREAM]
    findings = validate_stream(renamed)
    assert {finding.code for finding in findings if finding.counts} == {"RS302", "RS306"}
    assert sum(finding.code == "RS119" for finding in findings) == 2


@pytest.mark.parametrize(
    ("edits", "code"),
    [
        ([("set", 0, "output.1.status", None)], "IT103"),
        ([("set", 0, "output.0.status", None)], "IT103"),
        ([("unset", 0, "error")], "RO101"),
        ([("unset", 0, "store")], "RO104"),
        ([("set", 0, "text", None)], "RO105"),
        (TRUNCATION, "RO113"),
    ],
    ids=["46940", "reasoning status null", "33381 error", "33381 store", "CO-21 text", "57998"],
)
def test_bodies(edits: list[Edit], code: str) -> None:
    findings = validate_body(edited([BODY], edits)[0])
    assert {finding.code for finding in findings} == {code}


def test_status_null_is_an_error_for_calls_and_a_warning_for_reasoning() -> None:
    bad = edited([BODY], [("set", 0, "output.0.status", None), ("set", 0, "output.1.status", None)])[0]
    assert [str(finding.severity) for finding in validate_body(bad)] == ["warning", "error"]


def test_44608_id_of_a_call_is_null_at_done() -> None:
    done = "response.output_item.done#1"
    bad = edited(STREAM, [("set", done, "item.id", None), ("set", done, "item.item_id", "fc_1")])
    assert {"RS207", "IT110"} <= _codes(bad)


def test_co_15_event_fields_in_the_item() -> None:
    bad = edited(STREAM, [("set", "response.output_item.done#1", "item.sequence_number", -1)])
    assert "IT110" in _codes(bad)


def test_47916_two_call_ids_for_one_call() -> None:
    bad = edited(STREAM, [("set", "response.completed", "response.output.1.call_id", "call_x")])
    assert _codes(bad) == {"RS212"}


def test_45386_truncated_stream_ends_with_completed() -> None:
    bad = edited(STREAM, [("set", "response.completed", "response.status", "incomplete")])
    assert "RS107" in _codes(bad)


def test_55284_a_stream_that_aborts() -> None:
    assert _codes(STREAM[:-3]) == {"RS105"}


def test_45742_content_index_grows_over_items() -> None:
    events = render.response_events([render.reasoning("Let me think."), render.message("Hi")])
    late = [event.get("output_index") == 1 and "content_index" in event for event in events]
    bad = [
        {**event, "content_index": 1} if grows else event for event, grows in zip(events, late, strict=True)
    ]
    assert _codes(bad) >= {"RS301"}


def test_interleaved_parallel_calls() -> None:
    first, second = (render.response_events([render.function_call("{}", number=number)]) for number in (1, 2))
    middle = [event for pair in zip(first[2:-1], second[2:-1], strict=True) for event in pair]
    ids_of_second = {id(event) for event in second}
    woven = [{**event, "output_index": 1} if id(event) in ids_of_second else event for event in middle]
    calls = [render.function_call("{}", number=number) for number in (1, 2)]
    end = {**first[-1], "response": render.response(calls)}
    assert _codes(numbered([*first[:2], *woven, end])) == {"RS210"}


@pytest.mark.parametrize(
    ("sample", "edits", "request_", "code"),
    [
        ("chat_call", [("set", 3, "choices.0.delta.tool_calls.0.function.arguments", '"Par')], {}, "CC206"),
        ("chat_text", [("set", 1, "choices.0.delta.tool_calls", [])], {}, "CC209"),
        ("chat_call", [("unset", 1, "choices.0.delta.tool_calls.0.function.name")], {}, "CC203"),
    ],
    ids=["53269 truncated call has tool_calls", "empty tool_calls beside content", "55284 nameless call"],
)
def test_chat(sample: str, edits: list[Edit], request_: Json, code: str) -> None:
    assert code in _codes(edited(SAMPLES[sample].build(), edits), request=request_)


def test_reasoning_and_content_of_one_chunk_have_no_order() -> None:
    """vLLM writes `content` before `reasoning` in a chunk with both, which a busy server may send."""
    chunks = SAMPLES["chat_reasoning"].build()
    assert [*chunks[1]["choices"][0]["delta"]] == ["reasoning"]
    chunks[2]["choices"][0]["delta"] = {"content": "\n\n", "reasoning": " more"}
    assert "CC131" not in {finding.code for finding in validate_stream(chunks)}


def test_40978_failure_before_the_first_token_gives_only_done() -> None:
    findings = validate_stream(parse_sse([b"data: [DONE]\n\n"]))
    assert [finding.code for finding in findings] == ["CC123"]


def test_a_forced_function_may_end_with_stop() -> None:
    events = edited(SAMPLES["chat_call"].build(), [("set", -1, "choices.0.finish_reason", "stop")])
    forced = {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}}
    assert _codes(events, request=forced) == set()
    assert _codes(events) == set()
    assert _codes(events, request={}) == {"CC114"}


def test_co_21_echoed_budget() -> None:
    body = {**BODY, "max_output_tokens": 4096}
    assert [finding.code for finding in validate_body(body, request={"input": "Hi"})] == ["RO118"]
    assert validate_body(body, request={"input": "Hi", "max_output_tokens": 4096}) == []
