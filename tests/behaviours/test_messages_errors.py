"""Errors over Anthropic Messages: a 4xx in Anthropic's format, after which the server keeps serving."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.case_files import cases
from tests.error_objects import check_param
from tests.messages_api import TOOL, Messages, text_of
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_scripted, pytest.mark.vllm_needs("messages")]

NAMES = pytest.mark.vllm_known_defect("vllm-57997")
SHAPE = pytest.mark.vllm_known_defect("messages-validation-errors")


def still_serves(messages: Messages, script: ScriptWriter) -> None:
    """Asserts that an ordinary request is answered."""
    script("Still here.")
    assert text_of(messages.create("Hi")) == "Still here."


@pytest.mark.covers("VA-020", "LS-041")
@pytest.mark.parametrize("case", cases("messages_refused"))
def test_bad_request_is_refused(case: dict[str, Any], messages: Messages, script: ScriptWriter) -> None:
    answer = messages.post(messages.request("Hi", case["request"]))
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert "no script matches" not in error["message"], "vLLM would have served it"
    assert re.search(case["pattern"], error["message"], re.IGNORECASE), error["message"]
    check_param(error, case.get("param"))
    still_serves(messages, script)


@pytest.mark.covers("VA-020", "VA-023")
@SHAPE
def test_validation_error_has_anthropics_shape(messages: Messages) -> None:
    error = messages.refused(400, max_tokens=0)
    assert error["error"]["type"] == "invalid_request_error"


@pytest.mark.covers("VA-020", "VA-023")
@NAMES
def test_refusal_has_anthropics_names(messages: Messages) -> None:
    """The error for a request that is refused after validation has Anthropic's names too."""
    error = messages.refused(400, tools=[TOOL], tool_choice={"type": "tool", "name": "no_such_tool"})
    assert error["error"]["type"] == "invalid_request_error"


@pytest.mark.covers("VA-023", "LS-041", "vllm-57997")
@NAMES
def test_unknown_model(messages: Messages) -> None:
    error = messages.refused(404, model="no-such-model")
    assert error["error"]["type"] == "not_found_error"
    assert "no-such-model" in error["error"]["message"]


@pytest.mark.covers("VA-020")
def test_unknown_model_is_not_found_in_both_ways(messages: Messages, script: ScriptWriter) -> None:
    for more in ({}, {"stream": True}):
        answer = messages.post(messages.request("Hi", {"model": "no-such-model", **more}))
        assert answer.status_code == 404
        assert answer.json()["error"]["message"]
    counted = messages.post({"model": "no-such-model", "messages": []}, path="/count_tokens")
    assert counted.status_code in (400, 404)
    still_serves(messages, script)


@pytest.mark.covers("VA-020")
@pytest.mark.parametrize("raw", [b"{", b"[]", b'"text"', b""], ids=["cut", "list", "string", "empty"])
def test_body_that_is_no_object(raw: bytes, messages: Messages, script: ScriptWriter) -> None:
    answer = messages.post(None, raw=raw)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"]
    still_serves(messages, script)


@pytest.mark.covers("VA-020")
@pytest.mark.parametrize("stream", [False, True])
def test_prompt_larger_than_the_context(stream: bool, messages: Messages, script: ScriptWriter) -> None:
    """Even for a stream, the error is a 4xx that names the context length, as Claude Code requires."""
    long = "word " * 200_000
    answer = messages.post(messages.request(long, {"stream": stream}))
    assert 400 <= answer.status_code < 500, answer.text
    assert len(answer.text) < 10_000
    assert "context length" in answer.json()["error"]["message"]
    still_serves(messages, script)


@pytest.mark.covers("VA-020")
@pytest.mark.parametrize(
    "bad",
    [{"messages": [{"role": "user", "content": [{"type": "sparkle"}]}]}, {"model": ""}],
    ids=["block", "empty model"],
)
def test_count_tokens_refuses_as_messages_does(bad: dict[str, Any], messages: Messages) -> None:
    for path in ("", "/count_tokens"):
        answer = messages.post(messages.request("Hi", bad), path=path)
        assert answer.status_code == 400, answer.text


@pytest.mark.covers("VA-020", "VA-022")
@pytest.mark.parametrize("path", ["", "/count_tokens"], ids=["message", "count"])
def test_removal_of_no_tool_is_refused_by_both(path: str, messages: Messages) -> None:
    removal = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "nowhere"}}
    turns = [{"role": "user", "content": "Hi"}, {"role": "system", "content": [removal]}]
    answer = messages.post({"model": messages.model, "messages": turns, "max_tokens": 5}, path=path)
    assert answer.status_code == 400, answer.text
    error = answer.json()
    assert error["type"] == "error"
    assert "nowhere" in error["error"]["message"]
