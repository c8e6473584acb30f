"""Responses in the background: queued, running, cancelled, and their streams read from any position."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response

from tests.behaviours.tools import CALL, RESPONSES_TOOL
from tests.hanging import LATER, ends
from tests.responses_api import TERMINAL, Responses
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [
    pytest.mark.vllm_needs("responses"),
    pytest.mark.vllm_needs("background"),
]

STORY = "Tell me a long story about a dragon."
LONG = " ".join(f"word{number}" for number in range(4000))
SHORTER = " ".join(f"word{number}" for number in range(70))


def wait_for(
    client: OpenAI, response_id: str, done: Callable[[Response], bool], seconds: float = 60
) -> Response:
    """Polls a response every 50 ms until `done` is true or the time is up, and returns its last state."""
    end = time.monotonic() + seconds
    while True:
        response = client.responses.retrieve(response_id)
        if done(response) or time.monotonic() > end:
            return response
        time.sleep(0.05)


def finished(response: Response) -> bool:
    """Whether the response has a final status."""
    return response.status not in ("queued", "in_progress")


def replay(responses: Responses, response_id: str, after: int | None) -> list[dict[str, Any]]:
    """Returns a stored stream's events after a position, as JSON."""
    params = {"stream": "true"} | ({} if after is None else {"starting_after": str(after)})
    answer = responses.http.get(f"/v1/responses/{response_id}", params=params, timeout=60)
    assert answer.status_code == 200
    assert answer.headers["content-type"].partition(";")[0] == "text/event-stream"
    lines = [line for line in answer.content.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def begun(responses: Responses, script: ScriptWriter) -> Response:
    """Creates a long background response, and waits until the engine has answered a later request."""
    script(LONG, expect="truncated")
    created = responses.create(STORY, background=True)
    script("Later.")
    responses.create("Later?")
    return created


@pytest.mark.covers("VR-017", "VR-034", "LS-014")
def test_background_ends_as_the_foreground_does(
    responses: Responses, openai_client: OpenAI, script: ScriptWriter
) -> None:
    """A background response is queued, then completed, and has the output of a foreground response."""
    script("The end.", times=2)
    created = responses.create(STORY, background=True, max_output_tokens=32)
    assert created.status == "queued"
    assert created.output == []
    assert created.usage is None
    assert created.background is True
    ended = wait_for(openai_client, created.id, finished)
    plain = responses.create(STORY, max_output_tokens=32)
    assert ended.status == plain.status
    assert ended.id == created.id
    assert ended.created_at == created.created_at
    responses.check("check_body")(ended)
    assert ended.usage is not None
    if script.exact:
        assert [item.type for item in ended.output] == [item.type for item in plain.output]
        assert ended.output_text == plain.output_text
        assert plain.usage is not None
        assert ended.usage.output_tokens == plain.usage.output_tokens


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-017", "CO-05")
@pytest.mark.vllm_known_defect("background-job-stays-queued")
def test_background_is_seen_in_progress(
    responses: Responses, openai_client: OpenAI, script: ScriptWriter
) -> None:
    created = begun(responses, script)
    seen = openai_client.responses.retrieve(created.id).status
    openai_client.responses.cancel(created.id)
    assert seen == "in_progress"


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VR-017")
def test_background_call(responses: Responses, openai_client: OpenAI, script: ScriptWriter) -> None:
    script(calls=[CALL])
    created = responses.create("Weather in Paris?", background=True, tools=[RESPONSES_TOOL])
    call: Any = wait_for(openai_client, created.id, finished).output[-1]
    assert (call.type, call.name, call.arguments) == ("function_call", CALL.name, CALL.arguments_json)


@pytest.mark.covers("VR-018", "LS-014")
@pytest.mark.parametrize("stream", [False, True])
def test_background_must_be_stored(stream: bool, responses: Responses) -> None:
    body = {
        "model": responses.model,
        "input": STORY,
        "background": True,
        "store": False,
        "stream": stream,
        "max_output_tokens": 16,
    }
    answer = responses.post(body)
    assert answer.status_code == 400
    assert "background can only be used when `store` is true" in answer.json()["error"]["message"]


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-019", "VR-034", "LS-014")
def test_cancelled_stays_cancelled(responses: Responses, openai_client: OpenAI, script: ScriptWriter) -> None:
    """Cancelling stops the engine at once, before the end of the script, and no output appears afterwards."""
    created = begun(responses, script)
    cancelled = openai_client.responses.cancel(created.id)
    assert cancelled.status == "cancelled"
    assert cancelled.id == created.id
    script("Later.", times=LATER)
    for _ in range(LATER):
        responses.create("Later?")
        seen = openai_client.responses.retrieve(created.id)
        assert seen.status == "cancelled"
        assert seen.output == []


@pytest.mark.vllm_scripted
@pytest.mark.covers("LS-014")
@pytest.mark.vllm_known_defect("vllm-57999")
def test_cancel_may_be_repeated(responses: Responses, openai_client: OpenAI, script: ScriptWriter) -> None:
    created = begun(responses, script)
    for _ in range(2):
        assert openai_client.responses.cancel(created.id).status == "cancelled"


@pytest.mark.vllm_needs("store")
@pytest.mark.covers("VR-020", "LS-014")
def test_cancel_of_a_foreground_response_is_refused(
    responses: Responses, openai_client: OpenAI, script: ScriptWriter
) -> None:
    script("The end.")
    created = responses.create(STORY, max_output_tokens=16)
    with pytest.raises(openai.BadRequestError, match="Cannot cancel a synchronous response"):
        openai_client.responses.cancel(created.id)
    assert openai_client.responses.retrieve(created.id).model_dump() == created.model_dump()


@pytest.mark.covers("LS-014", "LS-032")
def test_cancel_of_an_unknown_response_is_not_found(responses: Responses, openai_client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="Response with id 'resp_of_nobody' not found") as caught:
        openai_client.responses.cancel("resp_of_nobody")
    responses.check("check_body")(caught.value.response.json())


@pytest.mark.covers("VR-038")
def test_replay_from_every_place(responses: Responses, script: ScriptWriter) -> None:
    """A background stream can be read again, whole or after each of its events, byte for byte."""
    script("The end of it.")
    stream = responses.stream(STORY, background=True, max_output_tokens=16)
    events = replay(responses, stream.terminal.id, None)
    assert [event["type"] for event in events] == stream.types
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event.to_dict() for event in stream.events] == events
    for place in range(len(events) - 1):
        assert replay(responses, stream.terminal.id, place) == events[place + 1 :]


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-038")
def test_second_reader_follows_a_running_stream(responses: Responses, script: ScriptWriter) -> None:
    """A second reader starts after the third event of a running stream, and gets all further events."""
    script(SHORTER)
    request = responses.request(STORY, {"background": True, "stream": True})
    with responses.client.responses.create(**request) as running:
        first = [event for _, event in zip(range(3), running, strict=False)]
        head: Any = first[0]
        second = replay(responses, head.response.id, 2)
        rest = list(running)
    events = [*first, *rest]
    responses.check("check_stream")(events)
    assert second == [event.to_dict() for event in events[3:]]


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-038", "VR-017")
def test_background_stream_goes_on_without_its_reader(
    responses: Responses, openai_client: OpenAI, script: ScriptWriter
) -> None:
    """The client disconnects after the first event; the job finishes, and all events are stored."""
    script(SHORTER)
    request = responses.request(STORY, {"background": True, "stream": True})
    with responses.client.responses.create(**request) as running:
        head: Any = next(iter(running))
    ended = wait_for(openai_client, head.response.id, finished)
    assert ended.status == "completed"
    assert ended.output_text.strip() == SHORTER
    events = replay(responses, ended.id, None)
    assert events[-1]["type"] in TERMINAL
    responses.check("check_stream")(events)


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-019")
@pytest.mark.vllm_known_defect("vllm-49721")
def test_cancel_ends_the_stream(responses: Responses, openai_client: OpenAI, script: ScriptWriter) -> None:
    script(LONG, expect="truncated")
    script("Later.", times=LATER)
    request = responses.request(STORY, {"background": True, "stream": True})
    with responses.client.responses.create(**request) as running:
        head: Any = next(iter(running))
        assert openai_client.responses.cancel(head.response.id).status == "cancelled"
        last = ends(lambda: list(running)[-1], lambda: responses.create("Later?"))
    assert last.type != "response.completed"


@pytest.mark.covers("VR-038", "LS-032")
def test_replay_of_an_unknown_response_is_not_found(responses: Responses) -> None:
    answer = responses.http.get("/v1/responses/resp_of_nobody", params={"stream": "true"}, timeout=60)
    assert answer.status_code == 404
    assert "resp_of_nobody" in answer.json()["error"]["message"]
