"""MCP tools on models that do not use the Harmony format."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.own_server import OwnServer
from tests.responses_api import Responses
from tests.tool_server.running import ToolServer
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._scripted.meaning import Meaning, ToolCall
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [
    pytest.mark.vllm_standard,
    pytest.mark.vllm_scripted,
    pytest.mark.vllm_model("qwen3"),
    pytest.mark.vllm_needs("responses"),
    pytest.mark.timeout(400),
]

CODE = "print(6 * 7)"
CALL = Meaning.of(calls=(ToolCall("code_interpreter", {"code": CODE}),))
THOUGHTS = "It wants to be computed."
INTERPRETER = {"type": "code_interpreter", "container": {"type": "auto"}}


@pytest.mark.covers("VM-007", "vllm-28173")
@pytest.mark.vllm_known_defect("vllm-28173")
def test_mcp_tool_of_the_request(responses: Responses, script: ScriptWriter, tmp_path: Path) -> None:
    """vLLM lists the tools of the MCP server that the request names, or refuses the request."""
    script("Hello.")
    with ToolServer("container", tmp_path) as server:
        tool = {"type": "mcp", "server_label": "mine", "server_url": f"http://{server.address}/sse"}
        answer = responses.post({"model": responses.model, "input": "Go", "tools": [tool]})
        sessions = server.journal("session")
    if answer.status_code == 200:
        items = answer.json()["output"]
        assert [item["server_label"] for item in items if item["type"] == "mcp_list_tools"] == ["mine"]
        assert sessions
    else:
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tools")
        assert "mcp" in answer.json()["error"]["message"].lower()


@pytest.mark.covers("vllm-57791")
@pytest.mark.vllm_known_defect("vllm-57791")
def test_two_calls_of_one_turn_with_the_parser_context(
    own_server: OwnServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Both calls in a turn are executed before the model generates again."""
    with ToolServer("python", tmp_path) as tools:
        server = own_server(["--tool-server", tools.address], {"VLLM_USE_EXPERIMENTAL_PARSER_CONTEXT": "1"})
        book = ScriptBook(server.endpoint, server.entry)
        api = Responses(book.client(timeout=60), server.model, request.getfixturevalue)
        codes = ["print(1)", "print(2)"]
        calls = tuple(ToolCall("code_interpreter", {"code": code}) for code in codes)
        book.script(turns=[Meaning.of(calls=calls), "One and two."])
        response = api.create("Count to two.", tools=[INTERPRETER])
        assert [call["code"] for call in tools.journal("python")] == codes
    assert response.output_text.strip() == "One and two."
    book.close()


@pytest.mark.covers("VM-007", "VM-009", "VR-053")
def test_code_interpreter_with_the_parser_context(
    own_server: OwnServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """With the experimental parser context, vLLM executes the call, returns its output, and continues.

    Each prompt contains the instructions once, reasoning is counted and can be hidden, and only one call is
    made if parallel calls are disabled.
    """
    with ToolServer("python", tmp_path) as tools:
        server = own_server(["--tool-server", tools.address], {"VLLM_USE_EXPERIMENTAL_PARSER_CONTEXT": "1"})
        book = ScriptBook(server.endpoint, server.entry)
        api = Responses(book.client(timeout=60), server.model, request.getfixturevalue)
        told = book.script(turns=[CALL, "It is 42."], keep_prompt=True)
        response = api.create("Six times seven?", tools=[INTERPRETER], instructions="Be brief.")
        assert [call["code"] for call in tools.journal("python")] == [CODE]
        assert [book.decode(ids).count("Be brief.") for ids in book.prompts(told.name)] == [1, 1]
        book.script(turns=[Meaning.of(reasoning=THOUGHTS, calls=CALL.calls), "It is 42."], times=2)
        thought, hidden = (
            api.create("Again?", tools=[INTERPRETER], extra_body={"include_reasoning": shown})
            for shown in (True, False)
        )
        tools.forget()
        book.script(turns=[Meaning.of(calls=CALL.calls * 2), "It is 42."])
        single = api.create("Once?", tools=[INTERPRETER], parallel_tool_calls=False)
        assert len(tools.journal("python")) == 1
    for each in (response, thought, hidden, single):
        calls = [item for item in each.output if item.type not in ("reasoning", "message")]
        assert [(call.type, call.name) for call in calls] == [("mcp_call", "code_interpreter")]
        assert calls[0].output == "42\n"
        assert each.output_text.strip() == "It is 42."
    assert THOUGHTS in str(thought.output)
    assert THOUGHTS not in str(hidden.output)
    counts = [each.usage.output_tokens_details.reasoning_tokens for each in (response, thought)]
    assert counts[1] > counts[0]
    book.verify()
