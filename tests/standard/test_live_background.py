"""Background responses of a real model continue without a reader, and stop when cancelled."""

from __future__ import annotations

import time

import pytest
from openai import OpenAI

from tests.behaviours.test_responses_background import STORY, finished, wait_for
from tests.responses_api import Responses
from vllm_harness._exchange.server import VllmServer
from vllm_harness._server.remote import RemoteServer

pytestmark = [
    pytest.mark.vllm_standard,
    pytest.mark.vllm_live,
    pytest.mark.vllm_needs("responses", "background"),
]


def wait_for_running(server: RemoteServer, wanted: int) -> None:
    """Waits until the engine is running this number of requests."""
    deadline = time.monotonic() + 60
    while (running := server.metrics()["vllm:num_requests_running"]) != wanted:
        assert time.monotonic() < deadline, f"the engine runs {running:.0f} requests, not {wanted}"
        time.sleep(0.1)


@pytest.mark.covers("VR-017")
def test_background_says_what_the_foreground_says(responses: Responses, openai_client: OpenAI) -> None:
    created = responses.create(STORY, background=True, max_output_tokens=24)
    ended = wait_for(openai_client, created.id, finished)
    plain = responses.create(STORY, max_output_tokens=24)
    assert ended.output_text
    assert ended.output_text == plain.output_text
    assert ended.status == plain.status == "incomplete"


@pytest.mark.covers("VR-019", "VR-018")
def test_a_cancelled_response_takes_no_more_of_the_engine(
    responses: Responses, openai_client: OpenAI, vllm_server: VllmServer
) -> None:
    """The engine stops a cancelled request long before it has generated the requested 2000 tokens."""
    if not isinstance(vllm_server, RemoteServer):
        pytest.fail("the live lane has a server of its own")
    created = responses.create(STORY, background=True, max_output_tokens=2000)
    wait_for_running(vllm_server, 1)
    cancelled = openai_client.responses.cancel(created.id)
    assert cancelled.status == "cancelled"
    wait_for_running(vllm_server, 0)
    assert openai_client.responses.retrieve(created.id).status == "cancelled"
    assert responses.create(STORY, max_output_tokens=8).output_text
