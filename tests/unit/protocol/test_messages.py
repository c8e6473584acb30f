"""Messages streams and bodies: objects of the SDK, truncated calls, errors, entry points."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anthropic import Anthropic, Stream
from anthropic.types import RawMessageStreamEvent
from typer.testing import CliRunner

from vllm_harness._protocol import (
    MessageAccumulator,
    parse_sse,
    validate_body,
    validate_stream,
)
from vllm_harness._protocol.core.events import Json
from vllm_harness._protocol.core.examples import Edit, as_sse, edited
from vllm_harness._protocol.messages import render as messages_render
from vllm_harness._protocol.samples import SAMPLES
from vllm_harness.cli.main import app

CALL = SAMPLES["messages_call"].build()
TRUNCATION: list[Edit] = [
    ("drop", "content_block_delta#3"),
    ("set", "message_delta", "delta.stop_reason", "max_tokens"),
]


def codes(events: list[Any]) -> set[str]:
    return {finding.code for finding in validate_stream(events)}


def of_sdk(events: list[Json]) -> list[Any]:
    """The events as objects of the Anthropic SDK."""
    request = httpx2.Request("POST", "http://localhost")
    response = httpx2.Response(200, content=as_sse(events).encode(), request=request)
    client = Anthropic(api_key="none", base_url="http://localhost")
    return list(Stream(cast_to=RawMessageStreamEvent, response=response, client=client))


@pytest.mark.parametrize(
    "name", ["messages_text", "messages_thinking", "messages_call", "messages_two_calls"]
)
def test_events_of_the_sdk_are_clean_and_add_up(name: str) -> None:
    raw = SAMPLES[name].build()
    events = of_sdk(raw)
    assert validate_stream(events) == []
    from_sdk, from_json = MessageAccumulator(), MessageAccumulator()
    for event in events:
        from_sdk.feed(event)
    for value in raw:
        from_json.feed(value)
    assert from_sdk.message == from_json.message


def test_fault_is_found_in_events_of_the_sdk() -> None:
    broken = edited(SAMPLES["messages_thinking"].build(), [("set", "content_block_start", "index", 4)])
    assert "MS201" in codes(of_sdk(broken))


def test_truncated_call_need_not_be_json() -> None:
    assert codes(edited(CALL, TRUNCATION)) == set()
    assert codes(edited(CALL, TRUNCATION[:1])) == {"MS211"}


def test_call_before_another_block_must_be_json() -> None:
    two = SAMPLES["messages_two_calls"].build()
    assert "MS211" in codes(edited(two, [*TRUNCATION, ("drop", "content_block_delta")]))


def test_missing_signature_at_the_start_is_a_warning() -> None:
    thinking = SAMPLES["messages_thinking"].build()
    unsigned = edited(thinking, [("unset", "content_block_start", "content_block.signature")])
    findings = validate_stream(unsigned)
    assert [(finding.code, str(finding.severity)) for finding in findings] == [("MB107", "warning")]


def test_error_ends_a_stream_without_further_findings() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    assert codes([*CALL[:5], error]) == {"MS114"}
    assert codes([*CALL[:5], {"type": "error", "error": {"type": "internal_error"}}]) == {
        "MS114",
        "MB112",
        "MB113",
    }


def test_done_mark_and_missing_names_are_findings() -> None:
    wire = as_sse(CALL)
    assert {f.code for f in validate_stream(parse_sse([f"{wire}data: [DONE]\n\n".encode()]))} == {"SE106"}
    unnamed = wire.replace("event: message_stop\n", "").encode()
    assert {f.code for f in validate_stream(parse_sse([unnamed]))} == {"SE102"}


def test_bodies_are_recognised() -> None:
    body = messages_render.answer([messages_render.text("Hello")])
    assert validate_body(body) == []
    assert [f.code for f in validate_body({**body, "stop_reason": None})] == ["MB104"]
    assert [
        f.code for f in validate_body({"error": {"message": "no", "type": "api_error"}}, api="messages")
    ] == ["MB112"]


def test_capture_is_recognised(tmp_path: Path) -> None:
    capture = tmp_path / "stream.jsonl"
    capture.write_text("\n".join(json.dumps(event) for event in CALL[:-1]))
    result = CliRunner().invoke(app, ["validate", str(capture)])
    assert result.exit_code == 1
    assert "MS103" in result.output
