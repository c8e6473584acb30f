"""No false findings in OpenAI's recorded traffic; true findings in that of other servers."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.protocol.recorded import ALL, OPENAI, STREAMS, Recorded
from vllm_harness._exchange.answer import answer_of
from vllm_harness._protocol import (
    ResponseAccumulator,
    Severity,
    compare_stream,
    parse_sse,
    validate_conversation,
    validate_stream,
)
from vllm_harness._protocol.captures import validate_exchange
from vllm_harness._protocol.core.examples import as_sse


def _named(recorded: Recorded) -> str:
    return recorded.name


@pytest.mark.parametrize("recorded", OPENAI, ids=_named)
def test_openai_has_no_errors_and_no_warnings(recorded: Recorded) -> None:
    assert [str(finding) for finding in validate_exchange(recorded.exchange) if finding.counts] == []


@pytest.mark.parametrize("recorded", STREAMS, ids=_named)
def test_openai_is_clean_without_its_request(recorded: Recorded) -> None:
    assert [str(finding) for finding in validate_stream(recorded.events) if finding.counts] == []


@pytest.mark.parametrize("recorded", STREAMS, ids=_named)
def test_openai_is_clean_as_bytes(recorded: Recorded) -> None:
    wire = as_sse(recorded.events).encode()
    assert [str(finding) for finding in validate_stream(parse_sse([wire])) if finding.counts] == []


@pytest.mark.parametrize("recorded", STREAMS, ids=_named)
def test_deltas_add_up_to_the_terminal_event(recorded: Recorded) -> None:
    assert [str(finding) for finding in compare_stream(recorded.events)] == []


def test_annotations_that_were_not_streamed_are_an_error() -> None:
    kind = "response.output_text.annotation.added"
    annotated = [stream for stream in STREAMS if any(event["type"] == kind for event in stream.events)]
    assert annotated
    for recorded in annotated:
        remaining = [event for event in recorded.events if event["type"] != kind]
        findings = validate_stream(remaining)
        errors = {finding.code for finding in findings if finding.severity == Severity.ERROR}
        assert "RS321" in errors, recorded.name


def test_openai_conversations_are_clean() -> None:
    exchanges = [recorded.exchange for recorded in OPENAI if recorded.own_ids]
    assert [str(f) for f in validate_conversation(exchanges, complete=False) if f.counts] == []


def test_accumulated_text_is_that_of_the_message() -> None:
    for recorded in STREAMS:
        accumulator = ResponseAccumulator()
        for event in recorded.events:
            accumulator.feed(event)
        assert accumulator.terminal is not None
        texts = [
            part["text"] for item in accumulator.terminal["output"] for part in item.get("content") or ()
        ]
        assert answer_of("responses", accumulator.body).text == "".join(texts)


def test_other_backends_have_their_known_differences() -> None:
    codes = Counter(
        (recorded.backend, finding.code)
        for recorded in ALL
        if recorded.backend != "openai"
        for finding in validate_exchange(recorded.exchange)
        if finding.counts
    )
    assert codes[("openrouter", "RS210")] == 1
    assert codes[("openrouter", "RS212")] == 1
    assert not [code for backend, code in codes if backend == "deepseek"]
