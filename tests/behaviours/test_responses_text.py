"""Responses: a text answer, as a body and as a stream, and the other fields of a response."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.behaviours.tools import CALL, RESPONSES_TOOL, WEATHER
from tests.case_files import cases
from tests.responses_api import IDS_MADE_AGAIN, Responses, expect_shape, items
from vllm_harness._protocol.responses.schema import RESPONSE_FIELDS
from vllm_harness._testing.content import expect_content
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = pytest.mark.vllm_needs("responses")

FRANCE = "What is the capital of France? Answer in one short sentence."
PARIS = "The capital of France is Paris."
INCLUDES = [
    *("reasoning.encrypted_content", "code_interpreter_call.outputs", "file_search_call.results"),
    *("computer_call_output.output.image_url", "message.input_image.image_url"),
]


@pytest.mark.covers("VR-001", "VR-006", "VR-010", "VR-015", "VR-036", "VR-070", "LS-002", "LS-003", "OR-002")
def test_streamed_text_is_the_body(responses: Responses, script: ScriptWriter) -> None:
    script(PARIS, times=2, delivery="tokens_1")
    body, stream = responses.both(FRANCE, max_output_tokens=64)
    expect_content("Paris" in body.output_text, f"Paris, not {body.output_text!r}")
    assert body.status == "completed"
    assert body.error is None
    assert body.incomplete_details is None
    assert stream.types[:2] == ["response.created", "response.in_progress"]
    assert stream.types[-1] == "response.completed"
    for event in stream.events[:2]:
        assert event.response.output == []  # type: ignore[union-attr]
        assert event.response.output_text == ""  # type: ignore[union-attr]
        assert event.response.status == "in_progress"  # type: ignore[union-attr]
        assert event.response.id == stream.terminal.id  # type: ignore[union-attr]
    assert stream.joined("output_text") == items(stream.terminal, "message")[-1].content[0].text
    assert len(stream.of("output_text.delta")) > 1
    expect_shape(script, items_of_text(body), ("message", PARIS))


def items_of_text(response: Any) -> Any:
    """Returns the response with only the messages in its output."""
    return response.model_copy(update={"output": items(response, "message")})


@IDS_MADE_AGAIN
@pytest.mark.covers("VR-066", "VR-015", "LS-036")
def test_streamed_items_are_those_of_the_terminal_event(responses: Responses, script: ScriptWriter) -> None:
    """Ids, indices and contents in the events equal those in the response that the last event contains."""
    script(PARIS)
    stream = responses.stream(FRANCE, max_output_tokens=64)
    added, done = stream.of("output_item.added"), stream.of("output_item.done")
    assert [event.output_index for event in added] == list(range(len(added)))
    assert [event.item.id for event in added] == [event.item.id for event in done]
    assert [event.item.id for event in done] == [item.id for item in stream.terminal.output]
    assert [event.item.type for event in done] == [item.type for item in stream.terminal.output]
    message = stream.terminal.output[-1]
    assert message.type == "message"
    assert {event.item_id for event in stream.of("output_text.delta", "output_text.done")} == {message.id}
    assert [event.text for event in stream.of("output_text.done")] == [message.content[0].text]  # type: ignore[union-attr]


@pytest.mark.vllm_scripted
@pytest.mark.covers("LS-001", "VR-012")
def test_usage_counts_every_token(responses: Responses, script: ScriptWriter) -> None:
    """The output tokens include all that the model generated, even the token that ends the turn."""
    written = script(PARIS, times=2)
    assert written is not None
    body, stream = responses.both(FRANCE)
    for response in (body, stream.terminal):
        assert response.usage is not None
        assert response.usage.output_tokens == len(written.takes[0])
        assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
        assert response.usage.input_tokens > 0


@pytest.mark.parametrize("case", cases("responses_echo"))
def test_request_is_echoed(case: dict[str, Any], responses: Responses, script: ScriptWriter) -> None:
    """The body, and the first and last response in a stream, echo the request."""
    script(PARIS, times=2)
    limit = {"max_output_tokens": 64, **case["send"]}
    body, stream = responses.create(FRANCE, **limit), responses.stream(FRANCE, **limit)
    first: Any = stream.events[0]
    for response in (body, first.response, stream.terminal):
        echoed = response.model_dump()
        for key, value in case.get("echo", case["send"]).items():
            assert _within(echoed.get(key), value) == value, f"{key} in a response that is {response.status}"


@pytest.mark.covers("OR-013")
@pytest.mark.parametrize(
    "names",
    [
        pytest.param([name for name, _ in RESPONSE_FIELDS if name != "error"], id="all but error"),
        pytest.param(["error"], id="error", marks=pytest.mark.vllm_known_defect("vllm-33381")),
    ],
)
def test_required_fields_are_there(names: list[str], responses: Responses, script: ScriptWriter) -> None:
    """The body, and the first and last response in a stream, have all required fields, null if unset."""
    script(PARIS, times=2)
    body, stream = responses.both(FRANCE)
    first: Any = stream.events[0]
    for response in (body, first.response, stream.terminal):
        sent = response.to_dict()
        for name in names:
            assert name in sent


def _within(echoed: Any, sent: Any) -> Any:
    """Returns the echoed value without fields that the server added to an object of the request."""
    if isinstance(echoed, dict) and isinstance(sent, dict):
        return {key: value for key, value in echoed.items() if key in sent}
    return echoed


@pytest.mark.covers("VR-041")
def test_id_may_be_given(responses: Responses, script: ScriptWriter) -> None:
    """vLLM's own field `request_id` sets the id of the response."""
    script(PARIS, times=2)
    given = [f"resp_{uuid.uuid4().hex}" for _ in range(2)]
    body = responses.create(FRANCE, extra_body={"request_id": given[0]}, max_output_tokens=32)
    stream = responses.stream(FRANCE, extra_body={"request_id": given[1]}, max_output_tokens=32)
    assert [body.id, stream.terminal.id] == given


@pytest.mark.covers("VR-001")
def test_model_may_be_left_out(responses: Responses, script: ScriptWriter) -> None:
    script(PARIS)
    answer = responses.post({"input": FRANCE, "max_output_tokens": 32})
    assert answer.status_code == 200
    assert answer.json()["model"] == responses.model


@pytest.mark.covers("VR-069")
def test_metrics_only_when_asked_for_at_start(responses: Responses, script: ScriptWriter) -> None:
    """A response has no metrics without a server flag, which no model entry sets."""
    script(PARIS)
    assert "metrics" not in responses.create(FRANCE, max_output_tokens=32).model_dump()


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-008", "VR-048")
def test_messages_only_when_asked_for(responses: Responses, script: ScriptWriter) -> None:
    """Without vLLM's own `enable_response_messages` the response does not repeat the prompt."""
    script(PARIS, times=2)
    body, stream = responses.both(FRANCE)
    for response in (body, stream.terminal):
        sent = response.to_dict()
        assert [sent.get(f"{side}_messages") for side in ("input", "output")] == [None, None]


@pytest.mark.vllm_scripted
@pytest.mark.covers("LS-032")
@pytest.mark.parametrize("name", INCLUDES)
def test_include_of_what_an_answer_lacks(name: str, responses: Responses, script: ScriptWriter) -> None:
    """The server accepts an `include` of something that the answer lacks, and the answer does not change."""
    script(PARIS, times=2)
    body, _ = responses.both(FRANCE, include=[name])
    expect_shape(script, items_of_text(body), ("message", PARIS))


@pytest.mark.vllm_live
@pytest.mark.covers("VR-014")
def test_sampling_parameters_take_effect(responses: Responses) -> None:
    """A seed makes a random answer repeatable, and with top_k 1 the answer is the greedy one."""
    poem = "Write a poem about rivers."
    hot = {"temperature": 1.5, "max_output_tokens": 24}
    seeded = [responses.create(poem, **hot, extra_body={"seed": 11}).output_text for _ in range(2)]
    assert seeded[0] == seeded[1]
    greedy = responses.create(poem, max_output_tokens=24).output_text
    assert responses.create(poem, **hot, extra_body={"top_k": 1}).output_text == greedy
    assert seeded[0] != greedy
    repeated = responses.create(
        poem, max_output_tokens=24, extra_body={"repetition_penalty": 1.8}
    ).output_text
    assert repeated != greedy


PREFIXES = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}


@pytest.mark.vllm_needs("tools", "reasoning")
@pytest.mark.covers("VR-006", "VR-015")
def test_id_of_an_item_says_its_kind(responses: Responses, script: ScriptWriter) -> None:
    """An item's id has a prefix that names the item's type, as in OpenAI's API, in a stream and in a body."""
    script("It is Paris.", reasoning="A capital.", times=2)
    script(calls=[CALL], times=2)
    for more in ({}, {"tools": [RESPONSES_TOOL]}):
        body, stream = responses.create(WEATHER, **more), responses.stream(WEATHER, **more)
        for item in (*body.output, *(event.item for event in stream.of("output_item.added"))):
            assert (item.id or "").startswith(PREFIXES[item.type]), item
