"""A null field means the same as an absent one, if the server's own schema allows null."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from requests import Response

from tests.apis import APIS, PATHS, Api, Json, question, request_fields, said
from tests.behaviours.tools import CHAT_TOOL, RESPONSES_TOOL
from tests.lost_calls import checks_for
from tests.messages_api import TOOL as MESSAGES_TOOL
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.server import VllmServer
from vllm_harness._protocol import parse_sse
from vllm_harness._scripted.meaning import ToolCall
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = pytest.mark.vllm_scripted

TOOLS: dict[Api, Json] = {"responses": RESPONSES_TOOL, "chat": CHAT_TOOL, "messages": MESSAGES_TOOL}
CALLS = [
    0,
    pytest.param(1, marks=pytest.mark.vllm_needs("tools")),
    pytest.param(2, marks=pytest.mark.vllm_needs("tools", "parallel_tools")),
]
WRONG: dict[Api, set[str]] = {"responses": {"background", "truncation"}, "chat": {"tool_choice"}}
"""Fields with a known defect that separate tests cover; for Responses: null-where-request-allows-it."""


CheckAnswer = Callable[[Api, Response], None]


@pytest.fixture
def check_streamed(request: pytest.FixtureRequest, vllm_server: VllmServer) -> CheckAnswer:
    """Checks an answer that is a stream."""
    check = checks_for(request, vllm_server)  # a test that requests a check must also use it
    return lambda api, answer: check("check_stream")(list(parse_sse([answer.content])), api=api)


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("api", APIS)
def test_null_says_nothing(
    api: Api,
    calls: int,
    stream: bool,
    vllm_server: VllmServer,
    http: Endpoint,
    script: ScriptWriter,
    check_streamed: CheckAnswer,
) -> None:
    """Sends all nulls at once; if the server refuses, sends them one by one to name the refused fields."""
    tools = {"tools": [TOOLS[api]]} if calls else {}
    request: dict[str, Any] = {"model": vllm_server.model, **question(api), **tools, "stream": stream}
    fields = request_fields(http.get("/openapi.json").json(), api)
    allowed = {name for name, field in fields.items() if {"type": "null"} in field.get("anyOf", ())}
    nulls = dict.fromkeys(sorted(allowed - {*request} - WRONG.get(api, set())))
    assert len(nulls) > 10
    script(
        *([] if calls else ["Rain."]), calls=[ToolCall("get_weather", {"city": "Paris"})] * calls, times=None
    )
    plain = http.post(PATHS[api], json=request)
    answer = http.post(PATHS[api], json={**nulls, **request})
    if answer.status_code != 200:
        alone = {name: http.post(PATHS[api], json={name: None, **request}) for name in nulls}
        refused = [name for name, answer in alone.items() if answer.status_code != 200]
        pytest.fail(f"null is refused for {refused}: {answer.text}")
    if stream:
        check_streamed(api, plain)
        check_streamed(api, answer)
    assert said(api, answer) == said(api, plain)


@pytest.mark.vllm_needs("tools")
@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(False, marks=pytest.mark.vllm_known_defect("null-tool-choice-loses-the-calls")),
        True,
    ],
    ids=["body", "stream"],
)
def test_null_tool_choice_of_a_chat(
    stream: bool, vllm_server: VllmServer, http: Endpoint, script: ScriptWriter, check_streamed: CheckAnswer
) -> None:
    request = {**question("chat"), "tools": [CHAT_TOOL], "tool_choice": None, "stream": stream}
    script(calls=[ToolCall("get_weather", {"city": "Paris"})])
    answer = http.post(PATHS["chat"], json={"model": vllm_server.model, **request})
    if stream:
        check_streamed("chat", answer)
    assert said("chat", answer) == ("", [("get_weather", {"city": "Paris"})])
