"""Each API's arguments for the chat template, shown by a template that renders them as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.apis import APIS, PATHS, Api, Json, question
from tests.behaviours.tools import INTERPRETER
from tests.own_server import OwnServer
from tests.tool_server.running import ToolServer
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._scripted.meaning import Meaning, ToolCall

pytestmark = [
    pytest.mark.vllm_standard,
    pytest.mark.vllm_scripted,
    pytest.mark.vllm_model("qwen3"),
    pytest.mark.vllm_needs("tools", "reasoning"),
]

NAMES = ("tools", "documents", "add_generation_prompt", "reasoning_effort", "enable_thinking", "word")
SHOWN = ", ".join(f'"{name}": {name} | default(none)' for name in NAMES)
TEMPLATE = '{{ {"messages": messages, ' + SHOWN + "} | tojson }}"
PARAMETERS: Json = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL: Json = {"name": "get_weather", "description": "Tells the weather.", "parameters": PARAMETERS}
PARIS = '{"city": "Paris"}'
LEVELS: dict[Api, tuple[str, ...]] = {
    "chat": ("none", "minimal", "low", "medium", "high", "xhigh"),
    "responses": ("none", "minimal", "low", "medium", "high", "xhigh"),
    "messages": ("none", "low", "medium", "high", "xhigh", "max"),
}
"""The effort levels that each API accepts; for Messages, `none` stands for disabled thinking."""

HISTORIES: dict[Api, Json] = {
    "chat": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Weather and tides?"},
            {
                "role": "assistant",
                "reasoning": "Two questions.",
                "content": "Let me look.",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": PARIS}},
                    {"id": "c2", "type": "function", "function": {"name": "get_tides", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "c2", "content": "high"},
            {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        ],
        "tools": [{"type": "function", "function": TOOL}],
    },
    "responses": {
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": "Weather and tides?"},
            {
                "type": "reasoning",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "Two questions."}],
            },
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Let me look."}],
            },
            {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": PARIS},
            {"type": "function_call", "call_id": "c2", "name": "get_tides", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c2", "output": "high"},
            {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        ],
        "tools": [{"type": "function", **TOOL}],
    },
    "messages": {
        "system": "Be brief.",
        "max_tokens": 64,
        "messages": [
            {"role": "user", "content": "Weather and tides?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Two questions.", "signature": "c2ln"},
                    {"type": "text", "text": "Let me look."},
                    {"type": "tool_use", "id": "c1", "name": "get_weather", "input": {"city": "Paris"}},
                    {"type": "tool_use", "id": "c2", "name": "get_tides", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c2", "content": "high"},
                    {"type": "tool_result", "tool_use_id": "c1", "content": "rain"},
                ],
            },
        ],
        "tools": [{"name": TOOL["name"], "description": TOOL["description"], "input_schema": PARAMETERS}],
    },
}
"""One conversation in the form of each API; its items have no ids, as from a stateless client."""


def called(id: str, name: str, arguments: Json) -> Json:
    """Returns a call as templates receive it: the arguments are an object."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def effort(api: Api, level: str) -> Json:
    """Returns the request fields that set the effort."""
    options: dict[Api, Json] = {
        "chat": {"reasoning_effort": level},
        "responses": {"reasoning": {"effort": level}},
        "messages": {"output_config": {"effort": level}},
    }
    return options[api]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of the template file."""
    file = tmp_path_factory.mktemp("template") / "shows-its-arguments.jinja"
    file.write_text(TEMPLATE)
    return str(file)


@pytest.fixture
def book(own_server: OwnServer, template: str) -> Iterator[ScriptBook]:
    """A script book on a server with the template."""
    server = own_server(["--chat-template", template])
    with closing(ScriptBook(server.endpoint, server.entry)) as book:
        yield book


def given(book: ScriptBook, api: Api, request: Json) -> Json:
    """Returns the arguments that the template received for a request."""
    told = book.script("Rain.", keep_prompt=True)
    with book.client() as client:
        path = PATHS[api].removeprefix("/v1")
        client.post(path, body={"model": book.entry.name, **request}, cast_to=object)
    (prompt,) = book.prompts(told.name)
    shown: Json = json.loads(book.decode(prompt))
    return shown


@pytest.mark.covers("VR-062", "VC-020", "VA-010", "VA-017")
@pytest.mark.parametrize("api", APIS)
def test_history_options_and_tools(api: Api, book: ScriptBook) -> None:
    """Every API passes the same call ids, outputs, reasoning, tools, effort and template arguments."""
    options: Json = {"chat_template_kwargs": {"word": "x"}, **effort(api, "low")}
    shown = given(book, api, {**HISTORIES[api], **options})
    turn = shown["messages"][2]
    assert turn.pop("reasoning_content", "Two questions.") == turn.pop("reasoning") == "Two questions."
    assert turn == {
        "role": "assistant",
        "content": "Let me look.",
        "tool_calls": [called("c1", "get_weather", {"city": "Paris"}), called("c2", "get_tides", {})],
    }
    assert [shown["messages"][place] for place in (0, 1, 3, 4)] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather and tides?"},
        {"role": "tool", "content": "high", "tool_call_id": "c2"},
        {"role": "tool", "content": "rain", "tool_call_id": "c1"},
    ]
    assert shown["tools"] == [{"type": "function", "function": TOOL}]
    assert [shown[name] for name in NAMES[2:]] == [True, "low", True, "x"]


@pytest.mark.covers("VC-022", "VC-020")
@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_thoughts_by_each_of_their_names(key: str, book: ScriptBook) -> None:
    """Either of the two fields is used, even if the other is null."""
    history = HISTORIES["chat"]
    turn = {**history["messages"][2], "reasoning": None, "reasoning_content": None, key: "Two questions."}
    messages = [*history["messages"][:2], turn, *history["messages"][3:]]
    shown = given(book, "chat", {**history, "messages": messages})
    assert shown["messages"][2]["reasoning"] == "Two questions."


@pytest.mark.covers("VC-020", "VC-022")
def test_what_a_turn_of_the_assistant_may_hold(book: ScriptBook) -> None:
    """The template gets an empty object for a call without arguments, and a refusal as content."""
    function = {"name": "get_tides", "arguments": ""}
    turns: list[Json] = [
        {"role": "user", "content": "Tides?"},
        {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c1", "content": "high"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "That I may not say."}]},
        {"role": "user", "content": "Why?"},
    ]
    shown = given(book, "chat", {"messages": turns})["messages"]
    assert shown[1]["tool_calls"] == [called("c1", "get_tides", {})]
    assert shown[3]["content"] == "That I may not say."


@pytest.mark.covers("VA-010", "VA-022", "VA-017")
def test_what_messages_may_hold(book: ScriptBook) -> None:
    """A turn may have several thinking blocks, a system message may come late, a schema may lack a type."""
    history = HISTORIES["messages"]
    user, turn, results = history["messages"]
    thoughts = [{"type": "thinking", "thinking": text, "signature": "c2ln"} for text in ("First.", "Then.")]
    turns = [user, {**turn, "content": [*thoughts, *turn["content"][2:]]}, results]
    system = {"role": "system", "content": "Now in French."}
    tool = {"name": "now", "input_schema": {"properties": {"zone": {"type": "string"}}}}
    shown = given(book, "messages", {**history, "messages": [*turns, system], "tools": [tool]})
    assert shown["messages"][2]["reasoning"] == "First.Then."
    assert shown["messages"][-1] == {"role": "system", "content": "Now in French."}
    assert shown["tools"][0]["function"]["parameters"]["type"] == "object"


@pytest.mark.covers("VR-043", "VC-022", "VA-017")
@pytest.mark.parametrize("api", APIS)
def test_tools_where_none_may_be_called(api: Api, book: ScriptBook) -> None:
    """With `tool_choice: none`, the template gets the tools unless a vLLM flag excludes them."""
    choice: dict[Api, Any] = {"chat": "none", "responses": "none", "messages": {"type": "none"}}
    shown = given(book, api, {**HISTORIES[api], "tool_choice": choice[api]})
    assert shown["tools"] == [{"type": "function", "function": TOOL}]


@pytest.mark.covers("VR-032", "VC-022", "VA-021")
@pytest.mark.parametrize("api", APIS)
def test_nothing_that_was_not_said(api: Api, book: ScriptBook) -> None:
    shown = given(book, api, question(api, "Hello."))
    assert shown["messages"] == [{"role": "user", "content": "Hello."}]
    assert {name: shown[name] for name in NAMES if shown[name] is not None} == {"add_generation_prompt": True}


@pytest.mark.covers("VR-032", "VC-022", "VA-021")
@pytest.mark.parametrize("api", APIS)
def test_effort(api: Api, book: ScriptBook) -> None:
    """The template receives the effort unchanged, and thinking is disabled for `none`."""
    for level in LEVELS[api]:
        off = (api, level) == ("messages", "none")
        asked = {"thinking": {"type": "disabled"}} if off else effort(api, level)
        shown = given(book, api, {**question(api), **asked})
        assert (shown["reasoning_effort"], shown["enable_thinking"]) == (level, level != "none")


@pytest.mark.covers("VC-020", "VC-022")
def test_parts_keep_their_further_fields(own_server: OwnServer, template: str) -> None:
    """A template that accepts lists of parts gets all fields of the parts."""
    server = own_server(["--chat-template", template, "--chat-template-content-format", "openai"])
    parts = [{"type": "text", "text": "Hello.", "mood": "glad"}, {"type": "text", "text": "Bye."}]
    with closing(ScriptBook(server.endpoint, server.entry)) as book:
        shown = given(book, "chat", {"messages": [{"role": "user", "content": parts}]})
    assert shown["messages"] == [{"role": "user", "content": parts}]


@pytest.mark.timeout(400)
@pytest.mark.covers("VM-009")
def test_output_of_a_built_in_tool_names_its_call(
    own_server: OwnServer, template: str, tmp_path: Path
) -> None:
    """In the next turn of vLLM's parser context, a tool output has the id of its call."""
    call = ToolCall("code_interpreter", {"code": "print(6 * 7)"})
    with ToolServer("python", tmp_path) as tools:
        flags = ["--tool-server", tools.address, "--chat-template", template]
        server = own_server(flags, {"VLLM_USE_EXPERIMENTAL_PARSER_CONTEXT": "1"})
        with closing(ScriptBook(server.endpoint, server.entry)) as book, book.client() as client:
            told = book.script(turns=[Meaning.of(calls=(call,)), "It is 42."], keep_prompt=True)
            offered: Any = [INTERPRETER]
            client.responses.create(model=server.model, input="Six times seven?", tools=offered)
            _, second = (json.loads(book.decode(ids)) for ids in book.prompts(told.name))
    *_, turn, output = second["messages"]
    assert output["content"] == "42\n"
    assert output["tool_call_id"] == turn["tool_calls"][0]["id"]
