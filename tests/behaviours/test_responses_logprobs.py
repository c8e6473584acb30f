"""Responses: log-probabilities and how they match the tokens."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import Response

from tests.responses_api import Responses, items
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_needs("responses"), pytest.mark.vllm_standard]

ASK = "What is the capital of France?"
ANSWER = "Paris, où l'été dure: 🦊."
INCLUDE: dict[str, Any] = {"include": ["message.output_text.logprobs"]}


def logprobs_of(response: Response) -> list[Any]:
    """Returns the entries of the last message's text."""
    return list(items(response, "message")[-1].content[0].logprobs or ())


def check_entries(entries: list[Any], top: int, *, greedy: bool) -> None:
    """Checks each entry; a greedy model generates the likeliest token, a scripted one the script's token."""
    assert entries
    for entry in entries:
        assert entry.logprob <= 0
        assert len(entry.top_logprobs) == top
        tops = [other.logprob for other in entry.top_logprobs]
        if top and greedy:
            assert tops == sorted(tops, reverse=True)
            assert entry.top_logprobs[0].token == entry.token
            assert entry.top_logprobs[0].logprob == entry.logprob


def text_of(entries: list[Any]) -> str:
    """Returns the text that the bytes of the entries add up to."""
    return bytes(byte for entry in entries for byte in entry.bytes).decode("utf-8", errors="replace")


@pytest.mark.covers("VR-005", "LS-005")
@pytest.mark.parametrize("top", [1, 5])
def test_each_token_has_its_alternatives(top: int, responses: Responses, script: ScriptWriter) -> None:
    script(ANSWER)
    response = responses.create(ASK, **INCLUDE, top_logprobs=top, max_output_tokens=24)
    check_entries(logprobs_of(response), top, greedy=not script.exact)
    assert response.top_logprobs == top


@pytest.mark.covers("VR-005", "LS-005")
def test_no_alternatives_where_none_are_asked_for(responses: Responses, script: ScriptWriter) -> None:
    script(ANSWER)
    response = responses.create(ASK, **INCLUDE, max_output_tokens=24)
    check_entries(logprobs_of(response), 0, greedy=not script.exact)


@pytest.mark.covers("LS-005")
def test_none_without_include(responses: Responses, script: ScriptWriter) -> None:
    script(ANSWER, times=2)
    body, stream = responses.both(ASK, top_logprobs=3, max_output_tokens=24)
    assert logprobs_of(body) == []
    assert logprobs_of(stream.terminal) == []
    assert [event.logprobs for event in stream.of("output_text.delta") if event.logprobs] == []


@pytest.mark.vllm_scripted
@pytest.mark.covers("VR-005")
@pytest.mark.vllm_known_defect("log-probabilities-of-other-tokens-stand-on-the-message")
def test_tokens_join_to_the_text(responses: Responses, script: ScriptWriter) -> None:
    script(ANSWER)
    response = responses.create(ASK, **INCLUDE, top_logprobs=1)
    assert text_of(logprobs_of(response)) == response.output_text
    assert "".join(entry.token for entry in logprobs_of(response)) == response.output_text


@pytest.mark.covers("VR-011", "LS-005")
def test_streamed_on_every_delta(responses: Responses, script: ScriptWriter) -> None:
    """Each delta has the entries for its tokens, and the final response has all entries."""
    script(ANSWER)
    stream = responses.stream(ASK, **INCLUDE, top_logprobs=3, max_output_tokens=24)
    deltas = stream.of("output_text.delta")
    assert [event.delta for event in deltas if not event.logprobs] == []
    entries = [entry for event in deltas for entry in event.logprobs]
    for entry in entries:
        assert entry.logprob <= 0
        assert len(entry.top_logprobs) == 3
    final = logprobs_of(stream.terminal)
    assert [(entry.token, entry.logprob) for entry in entries] == [
        (entry.token, entry.logprob) for entry in final
    ]


@pytest.mark.covers("VR-011", "LS-005")
@pytest.mark.vllm_known_defect("output-text-done-has-no-logprobs")
def test_streamed_on_the_done_event(responses: Responses, script: ScriptWriter) -> None:
    script(ANSWER)
    stream = responses.stream(ASK, **INCLUDE, top_logprobs=1, max_output_tokens=24)
    done = stream.of("output_text.done")[-1]
    assert [entry.token for entry in done.logprobs] == [entry.token for entry in logprobs_of(stream.terminal)]


@pytest.mark.covers("VR-011", "VR-066")
@pytest.mark.vllm_known_defect("log-probabilities-of-other-tokens-stand-on-the-message", models=["qwen3"])
@pytest.mark.vllm_known_defect("log-probabilities-of-tokens-without-text-are-not-streamed")
def test_body_and_stream_agree(responses: Responses, script: ScriptWriter) -> None:
    script(ANSWER, times=2)
    body, stream = responses.both(ASK, **INCLUDE, top_logprobs=2, max_output_tokens=24)
    seen, streamed = logprobs_of(body), logprobs_of(stream.terminal)
    assert [entry.token for entry in seen] == [entry.token for entry in streamed]
    assert [entry.logprob for entry in seen] == pytest.approx([entry.logprob for entry in streamed], abs=1e-3)
