"""Responses on gpt-oss: a token limit that truncates each kind of message."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import Response

from tests.responses_api import Responses, shape
from vllm_harness._scripted.book import Raw
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_harmony, pytest.mark.vllm_needs("responses"), pytest.mark.vllm_scripted]

HALF_A_HEADER = pytest.mark.vllm_known_defect("half-harmony-header-comes-back-as-text")
WORDS = " ".join(f"word{number}" for number in range(40))
THOUGHTS = f"<|channel|>analysis<|message|>{WORDS}"
HEADERS = {
    "final": ("<|channel|>final<|message|>", "message"),
    "preamble": ("<|channel|>commentary<|message|>", "message"),
    "thoughts": ("<|channel|>analysis<|message|>", "reasoning"),
    "call": ("<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>", "function_call"),
}
MCP = "<|channel|>commentary to=files.list <|constrain|>json<|message|>"


def cut(responses: Responses, stream: bool, budget: int) -> Response:
    """The response to a request with a token limit; other tests check the events of the stream."""
    request = responses.request("Weather?", {"max_output_tokens": budget})
    if not stream:
        response: Response = responses.client.responses.create(**request)
        responses.check("check_body")(response)
        return response
    last: Any = list(responses.client.responses.create(**request, stream=True))[-1]
    return last.response  # type: ignore[no-any-return]


@pytest.mark.covers("VR-013", "VR-050", "VR-061")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("header", "kind"), HEADERS.values(), ids=HEADERS.keys())
def test_cut_within_a_message(
    header: str, kind: str, stream: bool, responses: Responses, script: ScriptWriter
) -> None:
    """The response is incomplete, with one item of the right kind that has the text so far."""
    script(Raw(f"{header}{WORDS}<|return|>"), expect="cut")
    response = cut(responses, stream, 20)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    ((found, *_, words),) = shape(response)
    assert found == kind
    assert words
    assert WORDS.startswith(words)


@pytest.mark.covers("VR-013", "VR-061")
@pytest.mark.parametrize(
    "header",
    [*(HEADERS[kind][0] for kind in ("final", "preamble", "call")), MCP],
    ids=["final", "preamble", "call", "mcp"],
)
def test_item_that_is_cut_says_so(header: str, responses: Responses, script: ScriptWriter) -> None:
    script(Raw(f"{header}{WORDS}<|return|>"), expect="cut")
    assert cut(responses, False, 20).output[-1].status == "incomplete"  # type: ignore[union-attr]


@pytest.mark.covers("VR-013", "VR-039")
def test_cut_search_is_none(responses: Responses, script: ScriptWriter) -> None:
    """A truncated search call is not executed: the response is incomplete and has no item."""
    header = "<|channel|>commentary to=browser.search <|constrain|>json<|message|>"
    script(Raw(f'{header}{{"query": "{WORDS}"}}<|call|>'), expect="cut")
    response = cut(responses, False, 20)
    assert response.output == []
    assert response.status == "incomplete"
    assert response.incomplete_details is not None


@HALF_A_HEADER
@pytest.mark.covers("VR-013", "VR-050")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("budget", [1, 2, 3, 4])
def test_cut_within_a_header(budget: int, stream: bool, responses: Responses, script: ScriptWriter) -> None:
    """A response that is truncated within a header is incomplete and shows no part of the header."""
    script(
        Raw(f"<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{WORDS}"),
        expect="cut",
    )
    response = cut(responses, stream, budget)
    assert response.status == "incomplete"
    assert [item.type for item in response.output if item.type == "function_call"] == []
    assert "<|" not in response.output_text


@HALF_A_HEADER
@pytest.mark.covers("VR-013", "VR-050")
@pytest.mark.parametrize("stream", [False, True])
def test_cut_between_messages(stream: bool, responses: Responses, script: ScriptWriter) -> None:
    """The response has the complete reasoning, and no text of the answer, which has not started."""
    written = script(Raw(f"{THOUGHTS}<|end|><|start|>assistant<|channel|>final<|message|>Yes."), expect="cut")
    assert written is not None
    response = cut(responses, stream, len(written.takes[0]) - 7)
    assert response.status == "incomplete"
    assert shape(response)[0] == ("reasoning", WORDS)
    assert "<|" not in response.output_text
