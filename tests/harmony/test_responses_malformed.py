"""Responses on gpt-oss: malformed or partial Harmony output ends properly, without a 5xx or a hang."""

from __future__ import annotations

import json
from typing import Any

import pytest
from requests import Response

from tests.case_files import cases
from tests.responses_api import TERMINAL, Responses
from vllm_harness._scripted.book import Raw
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [
    pytest.mark.vllm_harmony,
    pytest.mark.vllm_needs("responses"),
    pytest.mark.vllm_scripted,
]


def events_of(answer: Response) -> list[dict[str, Any]]:
    """Parses the events of a complete stream."""
    lines = [line for line in answer.content.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


@pytest.mark.covers("VT-015", "VR-061", "VR-075")
@pytest.mark.parametrize("case", cases("responses_harmony_malformed"))
def test_malformed_output_has_a_defined_end(
    case: dict[str, Any], responses: Responses, script: ScriptWriter
) -> None:
    """The body has a final status, the stream has one terminal event, and the server still answers."""
    script(Raw(case["raw"]), times=2)
    body = {"model": responses.model, "input": "Weather?"}
    answer = responses.post(body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] in ("completed", "incomplete", "failed")
    streamed = responses.post({**body, "stream": True})
    assert streamed.status_code == 200, streamed.text
    events = events_of(streamed)
    kinds = [event["type"] for event in events]
    assert kinds[0] == "response.created"
    assert [kind for kind in kinds if kind in TERMINAL] == [kinds[-1]]
    if "keeps" in case:
        assert case["keeps"] in answer.text
        assert case["keeps"] in "".join(e["delta"] for e in events if e["type"].endswith("_text.delta"))
    script("Still here.")
    assert responses.create("Are you there?").output_text == "Still here."


@pytest.mark.covers("VT-015", "VR-061")
@pytest.mark.vllm_known_defect("stop-string-leaves-harmony-message-incomplete")
def test_recovered_words_are_a_plain_message(responses: Responses, script: ScriptWriter) -> None:
    script(Raw("<|channel|>final<|message|>No end follows.<|endoftext|>"))
    assert responses.create("Weather?").output_text == "No end follows."
