"""Responses on gpt-oss: log probabilities, which vLLM does not return for this model."""

from __future__ import annotations

from contextlib import closing

import openai
import pytest

from tests.responses_api import Responses, items
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._server.remote import RemoteServer
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_harmony, pytest.mark.vllm_needs("responses")]


@pytest.mark.covers("VR-005", "LS-005")
@pytest.mark.vllm_known_defect("vllm-23225")
def test_logprobs_of_a_text(responses: Responses, script: ScriptWriter) -> None:
    script("Paris.")
    response = responses.create("Capital?", include=["message.output_text.logprobs"], top_logprobs=2)
    assert items(response, "message")[-1].content[0].logprobs


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-005", "LS-005")
@pytest.mark.parametrize("more", [{}, {"top_logprobs": 2}], ids=["chosen", "alternatives"])
def test_they_come_or_are_refused(more: dict[str, int], vllm_server: RemoteServer) -> None:
    """The answer has log probabilities, or the request is refused; they are not left out silently."""
    request = {"include": ["message.output_text.logprobs"], **more}
    with closing(ScriptBook(vllm_server.endpoint, vllm_server.entry)) as book, book.client() as client:
        book.script("Paris.")
        refusal, given = "", []
        try:
            answer = client.responses.create(model=vllm_server.model, input="Capital?", extra_body=request)
            given = items(answer, "message")[-1].content[0].logprobs
        except openai.BadRequestError as error:
            refusal = error.message
    assert given or "logprobs" in refusal
