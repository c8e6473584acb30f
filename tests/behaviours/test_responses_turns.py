"""Responses: whatever a turn contains, its items come in order, and the stream matches the body.

Each turn is sent token by token, and by servers that send several tokens at a time (`--stream-interval`),
so that one delta may contain the end of an item and the start of the next. There are no blank lines between
the items (`constrained`); test_responses_calls covers those.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.behaviours.tools import RESPONSES_TOOL
from tests.case_files import cases
from tests.own_server import OwnServer
from tests.responses_api import Responses, Stream, shape
from vllm_harness._scripted.meaning import Meaning, ToolCall
from vllm_harness._server.remote import RemoteServer
from vllm_harness._testing.checks import BodyCheck, SameCheck, StreamCheck
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_needs("responses"), pytest.mark.vllm_scripted]

HEALTH = {"type": "function", "name": "get_health", "parameters": {"type": "object", "properties": {}}}
TOOLS = [RESPONSES_TOOL, HEALTH]
TOKENS_A_STEP = (3, 7, 1000)
AT_ONCE = 8


def meaning_of(case: dict[str, Any]) -> Meaning:
    """Returns the turn of the case."""
    calls = tuple(ToolCall(call["name"], call["arguments"]) for call in case.get("calls", ()))
    return Meaning.of(case.get("text"), reasoning=case.get("reasoning"), calls=calls)


def expected_items(case: dict[str, Any]) -> list[tuple[str, ...]]:
    """Returns the expected items of the turn."""
    expected: list[tuple[str, ...]] = []
    if "reasoning" in case:
        expected.append(("reasoning", case["reasoning"]))
    if "text" in case:
        expected.append(("message", case["text"]))
    calls = [ToolCall(call["name"], call["arguments"]) for call in case.get("calls", ())]
    return expected + [("function_call", call.name, call.arguments_json) for call in calls]


def check_turn(responses: Responses, case: dict[str, Any]) -> None:
    """Checks that body and stream have the scripted items."""
    body, stream = responses.both("Go on.", tools=TOOLS if "calls" in case else [])
    for response in (body, stream.terminal):
        actual = [tuple(part.strip() for part in item) for item in shape(response)]
        # Qwen3 writes an empty block if it does not reason, which becomes a blank item
        assert [item for item in actual if item != ("reasoning", "")] == expected_items(case)
    check_reasoning_tokens(body, stream, "reasoning" in case)


def check_reasoning_tokens(body: Any, stream: Stream, thoughtful: bool) -> None:
    """Asserts that body and stream count the same reasoning tokens, and none without reasoning."""
    counts = [response.usage.output_tokens_details.reasoning_tokens for response in (body, stream.terminal)]
    assert counts[0] == counts[1]
    if thoughtful:
        assert 0 < counts[0] < body.usage.output_tokens


@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VR-010", "VR-066", "LS-036", "VT-012")
@pytest.mark.parametrize("case", cases("responses_turns", "everyone"))
def test_turn(case: dict[str, Any], responses: Responses, script: ScriptWriter) -> None:
    script(meaning_of(case), constrained=True, times=2)
    check_turn(responses, case)


@pytest.mark.vllm_needs("reasoning", "tools")
@pytest.mark.covers("VR-010", "VR-012", "VR-063", "VR-064", "VR-066", "GO-008", "LS-030", "LS-036")
@pytest.mark.parametrize("case", cases("responses_turns", "thoughtful"))
def test_thoughtful_turn(case: dict[str, Any], responses: Responses, script: ScriptWriter) -> None:
    script(meaning_of(case), constrained=True, times=2)
    check_turn(responses, case)


@pytest.mark.vllm_needs("reasoning", "parallel_tools")
@pytest.mark.covers("VR-010", "VR-065", "VR-066", "LS-036")
@pytest.mark.parametrize("case", cases("responses_turns", "parallel"))
def test_parallel_turn(case: dict[str, Any], responses: Responses, script: ScriptWriter) -> None:
    script(meaning_of(case), constrained=True, times=2)
    check_turn(responses, case)


@pytest.mark.vllm_needs("reasoning")
@pytest.mark.covers("VR-012", "VR-066")
@pytest.mark.vllm_known_defect("partial-characters-are-no-thoughts-in-a-stream")
def test_split_characters_count_as_thoughts(responses: Responses, script: ScriptWriter) -> None:
    """Reasoning whose characters take several tokens counts the same in body and stream."""
    animals = Meaning.of("Yes.", reasoning="Animals: 🦊 🐉 🦩 🦚 🦭 🐙 🦔.")
    script(animals, constrained=True, times=2, delivery="tokens_1")
    check_reasoning_tokens(*responses.both("Go on."), thoughtful=True)


@pytest.fixture(params=TOKENS_A_STEP, ids=lambda tokens: f"{tokens} tokens a step")
def stepping_server(request: pytest.FixtureRequest, own_server: OwnServer) -> RemoteServer:
    """A server like the one under test that sends several tokens at a time."""
    return own_server(["--stream-interval", str(request.param)])


@pytest.mark.vllm_model("gpt-oss", "qwen3")
@pytest.mark.covers("VR-063", "VR-064", "VR-065", "VR-066")
def test_turns_in_larger_steps(
    stepping_server: RemoteServer, check_body: BodyCheck, check_stream: StreamCheck, check_same: SameCheck
) -> None:
    """Runs all cases concurrently, since the server's start takes most of the time."""
    checks = {"check_body": check_body, "check_stream": check_stream, "check_same": check_same}

    def fault(name: str) -> str | None:
        message = None
        book = stepping_server.book(f"steps {name}")
        book.script(meaning_of(named[name]), constrained=True, times=2)
        with book.client() as client:
            try:
                check_turn(Responses(client, stepping_server.model, checks.__getitem__), named[name])
            except AssertionError as error:
                message = str(error)
        book.verify()
        book.close()
        return message

    groups = ["everyone", "thoughtful"]
    if "parallel_tools" in stepping_server.entry.capabilities:
        groups.append("parallel")
    named = {
        parameter.id: parameter.values[0] for group in groups for parameter in cases("responses_turns", group)
    }
    with ThreadPoolExecutor(AT_ONCE) as pool:
        faults = dict(zip(named, pool.map(fault, named), strict=True))
    assert {name: words for name, words in faults.items() if words} == {}
