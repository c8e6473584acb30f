"""Defects in the Responses API that do not depend on the model: plain requests and edge cases."""

from __future__ import annotations

from typing import Any

import pytest

from tests.defects.wire import (
    NO_SCRIPT,
    SHOW_PROMPT,
    TOOL,
    Wire,
    accepted,
    items,
    prompt_of,
    refused,
    user,
)
from tests.hanging import LATER, ends
from vllm_harness._scripted.meaning import ToolCall
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_scripted, pytest.mark.vllm_needs("responses")]

LONG = "and on " * 1500
CALL = ToolCall("get_weather", {"city": "Paris"})
NULLABLE = (
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "store",
    "stream",
    "temperature",
    "text",
    "top_p",
    "user",
)


@pytest.mark.covers("CO-02")
@pytest.mark.vllm_known_defect("vllm-49721")
def test_stream_of_a_cancelled_response_ends(wire: Wire, script: ScriptWriter) -> None:
    """After a response is cancelled, its stream ends. Source: API reference, POST /responses/{id}/cancel."""
    script(LONG, expect="truncated")
    script("Later.", times=LATER)
    with wire.open("Go on", background=True) as events:
        response_id = next(events)["response"]["id"]
        accepted(wire.http.post(f"/v1/responses/{response_id}/cancel"))
        ends(lambda: list(events), lambda: wire.respond("Later?"))


@pytest.mark.covers("CO-03")
@pytest.mark.vllm_known_defect("replay-after-last-event")
def test_replay_after_the_last_event_ends(wire: Wire, script: ScriptWriter) -> None:
    """Source: API reference, GET /responses/{id}, `starting_after`: nothing follows the last event."""
    script("That is all.")
    events = wire.stream("Go on", background=True)
    last = events[-1]
    script("Later.", times=LATER)
    further = ends(
        lambda: wire.replay(last["response"]["id"], starting_after=last["sequence_number"]),
        lambda: wire.respond("Later?"),
    )
    assert further == []


@pytest.mark.covers("CO-04")
@pytest.mark.vllm_known_defect("replay-of-a-foreground-response")
def test_replay_of_a_foreground_response_is_refused(wire: Wire, script: ScriptWriter) -> None:
    """Source: background mode guide: only responses created with `background` and `stream` can be resumed."""
    script("Hello.")
    response = wire.respond("Hi")
    refused(wire.http.get(f"/v1/responses/{response['id']}", params={"stream": "true"}))


@pytest.mark.covers("CO-06")
@pytest.mark.parametrize("field", ["background", "truncation"])
@pytest.mark.vllm_known_defect("null-where-request-allows-it")
def test_null_is_as_omitted(field: str, wire: Wire, script: ScriptWriter) -> None:
    """Source: OpenAPI, CreateResponse: the field is nullable."""
    script("Hello.")
    wire.respond("Hi", **{field: None})


@pytest.mark.covers("CO-07")
@pytest.mark.vllm_known_defect("service-tier-null")
def test_service_tier_may_be_null(wire: Wire, script: ScriptWriter) -> None:
    """Source: OpenAPI, CreateResponse: the field is nullable."""
    script("Hello.")
    wire.respond("Hi", service_tier=None)


@pytest.mark.covers("CO-07")
@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(
            wanted,
            marks=pytest.mark.vllm_known_defect("include-lacks-values"),
        )
        for wanted in ("web_search_call.action.sources", "web_search_call.results")
    ]
    + ["file_search_call.results", "code_interpreter_call.outputs", "message.input_image.image_url"],
)
def test_include_takes_the_values_of_the_api(wanted: str, wire: Wire, script: ScriptWriter) -> None:
    """Source: OpenAI's OpenAPI schema, IncludeEnum."""
    script("Hello.")
    wire.respond("Hi", include=[wanted])


@pytest.mark.covers("CO-06", "CO-07")
def test_every_other_nullable_field_may_be_null(wire: Wire, script: ScriptWriter) -> None:
    """vLLM accepts null in each of these fields, as if the field were absent."""
    script("Hello.")
    wire.respond("Hi", **dict.fromkeys(NULLABLE))


@pytest.mark.covers("CO-07")
@pytest.mark.parametrize("field", ["tools", "tool_choice"])
def test_null_where_the_api_has_no_null(field: str, wire: Wire) -> None:
    """OpenAI's schema does not allow null in this field, so a refusal with an error object is right."""
    refused(wire.post("responses", input="Hi", **{field: None}))


@pytest.mark.covers("CO-08")
@pytest.mark.vllm_known_defect("conversation-is-ignored")
def test_unknown_conversation_is_refused(wire: Wire) -> None:
    """Source: API reference: the conversation's items are prepended; an unknown conversation is an error."""
    refused(wire.post("responses", input="Hi", conversation="conv_68f0c0ffee"))


@pytest.mark.covers("CO-08")
@pytest.mark.parametrize(
    "hint",
    [
        {"stream_options": {"include_obfuscation": False}, "stream": True},
        {"context_management": [{"type": "compaction", "compact_threshold": 100000}]},
    ],
    ids=["stream_options", "context_management"],
)
def test_hints_may_be_ignored(hint: dict[str, Any], wire: Wire, script: ScriptWriter) -> None:
    """vLLM may ignore these hints, since it never obfuscates, and the request is below the threshold."""
    script("Hello.")
    accepted(wire.post("responses", input="Hi", **hint), is_json=False)


ECHOED: dict[str, Any] = {
    "error": None,
    "incomplete_details": None,
    "store": True,
    "previous_response_id": None,
    "parallel_tool_calls": True,
    "truncation": "disabled",
    "background": False,
    "tools": [],
}
NOT_ECHOED = ("error", "store")
MISSING_FIELDS = pytest.mark.vllm_known_defect("vllm-33381")


@pytest.mark.covers("CO-21")
@pytest.mark.parametrize(
    "field", [pytest.param(f, marks=MISSING_FIELDS) if f in NOT_ECHOED else f for f in ECHOED]
)
def test_response_says_what_was_not_asked_for(field: str, wire: Wire, script: ScriptWriter) -> None:
    """Source: OpenAI's own responses (tests/unit/protocol/data) to a request that sets no options."""
    script("Hello.")
    response = wire.respond("Hi")
    assert field in response
    assert response[field] == ECHOED[field]


@pytest.mark.covers("CO-21")
@MISSING_FIELDS
def test_completed_response_says_when(wire: Wire, script: ScriptWriter) -> None:
    """Source: OpenAPI, Response.completed_at."""
    script("Hello.")
    response = wire.respond("Hi")
    assert response.get("completed_at", 0) >= response["created_at"]


@pytest.mark.covers("CO-22")
@pytest.mark.vllm_known_defect("vllm-57999")
def test_cancelling_twice_gives_the_response(wire: Wire, script: ScriptWriter) -> None:
    """Source: background mode guide: cancelling twice is idempotent and returns the final Response."""
    script(LONG, expect="truncated")
    script("Later.")
    response_id = wire.respond("Go on", background=True)["id"]
    wire.respond("Later?")  # so the engine has begun with the first one
    first = accepted(wire.http.post(f"/v1/responses/{response_id}/cancel"))
    assert first["status"] == "cancelled"
    second = accepted(wire.http.post(f"/v1/responses/{response_id}/cancel"))
    assert second == first


@pytest.mark.covers("CO-22")
def test_cancelling_a_finished_response(wire: Wire, script: ScriptWriter) -> None:
    """Cancelling a finished response leaves it completed: the server returns it unchanged, or refuses.

    OpenAI's guide promises idempotence only for cancelled responses, so either answer is accepted.
    """
    script("Done.")
    path = f"/v1/responses/{wire.stream('Go on', background=True)[-1]['response']['id']}"
    before = wire.http.get(path).json()
    answer = wire.http.post(f"{path}/cancel")
    if not answer.ok:
        assert answer.status_code == 400
        assert "cancel" in refused(answer)["message"].lower()
    else:
        assert answer.json() == before
    assert before["status"] == "completed"
    assert wire.http.get(path).json() == before


@pytest.mark.covers("CO-26")
@pytest.mark.vllm_known_defect("vllm-39624")
def test_response_can_be_deleted(wire: Wire, script: ScriptWriter) -> None:
    """Source: API reference, DELETE /responses/{id}."""
    script("Hello.")
    path = f"/v1/responses/{wire.respond('Hi')['id']}"
    accepted(wire.http.request("DELETE", path))
    assert wire.http.get(path).status_code == 404


@pytest.mark.covers("CO-26")
@pytest.mark.vllm_known_defect("input-items-cannot-be-listed")
def test_input_items_can_be_listed(wire: Wire, script: ScriptWriter) -> None:
    """Source: API reference, GET /responses/{id}/input_items."""
    script("Hello.")
    listed = accepted(wire.http.get(f"/v1/responses/{wire.respond('Hi')['id']}/input_items"))
    assert [item["role"] for item in listed["data"]] == ["user"]


@pytest.mark.covers("CO-26")
@pytest.mark.parametrize(
    "path",
    [
        pytest.param("responses/input_tokens", marks=pytest.mark.vllm_known_defect("vllm-49533")),
        pytest.param("responses/compact", marks=pytest.mark.vllm_known_defect("vllm-56970")),
    ],
)
def test_further_endpoints_answer(path: str, wire: Wire) -> None:
    """Source: API reference, POST /responses/input_tokens and /responses/compact."""
    accepted(wire.post(path, input="Hi"))


REPLAYED: dict[str, dict[str, Any]] = {
    "without id and status": {"content": [{"type": "output_text", "text": "Rome", "annotations": []}]},
    "without annotations": {"id": "msg_1", "content": [{"type": "output_text", "text": "Rome"}]},
    "as a string": {"content": "Rome"},
    "as an easy message": {"type": None, "content": "Rome"},
}


@pytest.mark.covers("vllm-41355", "vllm-45273")
@pytest.mark.parametrize("shape", REPLAYED)
def test_assistant_messages_come_back_in_any_shape(shape: str, wire: Wire, script: ScriptWriter) -> None:
    """Source: OpenAPI, EasyInputMessage and OutputMessage; SDKs and Codex omit optional fields."""
    script("Hello.")
    message = {"type": "message", "role": "assistant", **REPLAYED[shape]}
    sent = {key: value for key, value in message.items() if value is not None}
    response = wire.respond([user("Capital?"), sent, user("Sure?")], **SHOW_PROMPT)
    assert "Rome" in prompt_of(response)


@pytest.mark.covers("vllm-45276", "CO-16")
@pytest.mark.vllm_known_defect("vllm-45276")
def test_assistant_message_without_content(wire: Wire, script: ScriptWriter) -> None:
    """Source: OpenAPI, OutputMessage: `content` has no minimum length; vLLM itself sends empty lists."""
    script("Hello.")
    empty = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": []}
    wire.respond([user("Capital?"), empty, user("And?")])


@pytest.mark.covers("vllm-45276")
@pytest.mark.vllm_needs("tools")
@pytest.mark.parametrize("arguments", ["", '{"city": "Par', "[]", "null"])
def test_old_call_with_bad_arguments(arguments: str, wire: Wire) -> None:
    """A truncated call in the history is accepted, or refused with an error object."""
    call = {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": arguments}
    output = {"type": "function_call_output", "call_id": "call_1", "output": "bad arguments"}
    answer = wire.post("responses", input=[user("Weather?"), call, output, user("Again")], tools=[TOOL])
    assert NO_SCRIPT in answer.text or refused(answer)


@pytest.mark.covers("vllm-49239")
def test_error_is_not_larger_than_the_request_deserves(wire: Wire) -> None:
    """A small request with many invalid items gets a small error."""
    answer = wire.post("responses", input=[{"type": "nonsense", "a": i} for i in range(150)])
    refused(answer)
    assert len(answer.content) < 2**20


@pytest.mark.covers("vllm-57222")
@pytest.mark.vllm_known_defect("vllm-57222")
def test_usage_tells_cache_writes(wire: Wire, script: ScriptWriter) -> None:
    """Source: OpenAPI, ResponseUsage.input_tokens_details."""
    script("Hello.")
    details = wire.respond("Hi")["usage"]["input_tokens_details"]
    assert isinstance(details["cache_write_tokens"], int)


@pytest.mark.covers("vllm-46940")
@pytest.mark.vllm_needs("tools")
@pytest.mark.vllm_known_defect("vllm-46940")
def test_function_call_is_completed(wire: Wire, script: ScriptWriter) -> None:
    """Source: OpenAPI, FunctionToolCall.status."""
    script(calls=[CALL])
    (call,) = items(wire.respond("Weather?", tools=[TOOL]), "function_call")
    assert call["status"] == "completed"


@pytest.mark.covers("vllm-22403")
@pytest.mark.vllm_needs("tools")
def test_call_though_no_tools_were_offered(wire: Wire, script: ScriptWriter) -> None:
    """If the model calls a tool that was not offered, the client gets an answer, not an error."""
    script(calls=[CALL], times=2)
    body = wire.respond("Weather?")
    events = wire.stream("Weather?")
    assert events[-1]["type"] == "response.completed"
    assert body["output"]


@pytest.mark.covers("CO-18")
@pytest.mark.vllm_needs("reasoning")
@pytest.mark.vllm_known_defect("reasoning-item-has-no-status")
def test_reasoning_has_the_same_status_streamed_and_not(wire: Wire, script: ScriptWriter) -> None:
    """Source: OpenAPI, ReasoningItem.status: it has one of three values, and is not null."""
    script("Hello.", reasoning="A greeting.", times=2)
    (body,) = items(wire.respond("Hi"), "reasoning")
    (streamed,) = (
        event["item"]
        for event in wire.stream("Hi")
        if event["type"] == "response.output_item.done" and event["item"]["type"] == "reasoning"
    )
    assert body["status"] == streamed["status"]
