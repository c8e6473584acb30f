"""Responses: the server answers invalid requests with a 4xx and the error object, and keeps serving."""

from __future__ import annotations

import re
from typing import Any

import openai
import pytest
from openai import OpenAI
from requests import Response

from tests.case_files import cases
from tests.error_objects import check_param
from tests.responses_api import Responses
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = pytest.mark.vllm_needs("responses")

OMIT = "~omit"


def check_refused(
    responses: Responses, answer: Response, status: int, words: list[str], param: str | None = None
) -> None:
    """Checks the status and the error object, whose message must name the problem (not a missing script)."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    responses.check("check_body")(body)
    error = body["error"]
    assert isinstance(error["message"], str)
    assert error["type"]
    assert error["code"] in (status, str(status)) or isinstance(error["code"], str)
    assert any(word in error["message"] for word in words), error["message"]
    assert "no script matches" not in error["message"]
    assert "Traceback" not in error["message"]
    check_param(error, param)


def check_serves(responses: Responses, script: ScriptWriter) -> None:
    """Asserts that a plain request is answered."""
    script("Still here.")
    assert responses.create("Are you there?", max_output_tokens=16 if script.exact else 1).output


def check_wrong(responses: Responses, case: dict[str, Any], **more: Any) -> None:
    """Asserts that the case's request is refused as expected."""
    body = {"model": responses.model, "input": "hi", "max_output_tokens": 16, **more, **case["body"]}
    body = {key: value for key, value in body.items() if value != OMIT}
    check_refused(responses, responses.post(body), case.get("status", 400), case["words"], case.get("param"))


@pytest.mark.parametrize("case", cases("responses_bad_requests"))
def test_wrong_request(case: dict[str, Any], responses: Responses, script: ScriptWriter) -> None:
    check_wrong(responses, case)
    check_serves(responses, script)


@pytest.mark.parametrize("case", cases("responses_bad_requests", known="known_streamed"))
def test_wrong_streamed_request(case: dict[str, Any], responses: Responses, script: ScriptWriter) -> None:
    """The server refuses a streamed request with an error body, not with an event in a stream."""
    check_wrong(responses, case, stream=True)
    check_serves(responses, script)


@pytest.mark.covers("LS-032", "VC-029")
@pytest.mark.parametrize("raw", [b"{", b"", b"[1]", b'"hi"', b"null", b"\xff\xfe{}", b'{"input": "hi",}'])
def test_body_that_is_no_json_object(raw: bytes, responses: Responses, script: ScriptWriter) -> None:
    answer = responses.post(raw=raw)
    assert answer.status_code in (400, 422)
    body = answer.json()
    responses.check("check_body")(body)
    check_serves(responses, script)


@pytest.mark.covers("LS-032")
def test_malformed_is_400_not_422(responses: Responses) -> None:
    check_refused(responses, responses.post(raw=b'{"input": '), 400, ["JSON", "Json", "json"])


@pytest.mark.covers("VC-037")
def test_wrong_content_type(responses: Responses) -> None:
    answer = responses.post(raw=b'{"input": "hi"}', kind="text/plain", timeout=60)
    assert 400 <= answer.status_code < 500
    responses.check("check_body")(answer.json())


@pytest.mark.covers("VC-029")
def test_refusal_of_many_faults_stays_small(responses: Responses, script: ScriptWriter) -> None:
    """The size of the error does not grow with the number of faults in the request (vllm#49239)."""
    answer = responses.post({"model": responses.model, "input": [{"type": "message"}] * 40})
    assert answer.status_code == 400
    assert len(answer.content) < 16_000
    check_serves(responses, script)


@pytest.mark.covers("VR-062", "LS-032")
def test_refusal_shows_what_was_sent(responses: Responses) -> None:
    """vLLM adds fields to assistant messages before it validates them; the error shows only sent fields."""
    broken = {"type": "message", "role": "assistant", "content": [{"type": "output_text"}]}
    answer = responses.post({"model": responses.model, "input": [broken]})
    check_refused(responses, answer, 400, ["text"])
    assert "annotations" not in answer.text


@pytest.mark.covers("LS-032")
@pytest.mark.vllm_known_defect("vllm-39624")
@pytest.mark.vllm_needs("store")
def test_stored_response_can_be_deleted(
    responses: Responses, openai_client: OpenAI, script: ScriptWriter
) -> None:
    script("Noted.")
    created = responses.create("Forget this.", max_output_tokens=16)
    openai_client.responses.delete(created.id)
    with pytest.raises(openai.NotFoundError):
        openai_client.responses.retrieve(created.id)


@pytest.mark.vllm_needs("store")
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("LS-032", "VR-062")
def test_arguments_of_an_old_call_may_be_no_json(responses: Responses, script: ScriptWriter) -> None:
    """A truncated call in the history is accepted, or refused with a clear error (vllm#45273).

    The test has no script, so on the scripted lane an accepted request leads to a 400 about a missing script.
    """
    history = [
        {"role": "user", "content": "Weather?"},
        {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": '{"city": "Par'},
        {"type": "function_call_output", "call_id": "call_1", "output": "nothing"},
        {"role": "user", "content": "Go on."},
    ]
    answer = responses.post({"model": responses.model, "input": history, "max_output_tokens": 16})
    responses.check("check_body")(answer.json())
    if answer.status_code != 200:
        assert answer.status_code == 400, answer.text
        assert re.search("no script matches|arguments|JSON", answer.json()["error"]["message"]), answer.text
    check_serves(responses, script)
