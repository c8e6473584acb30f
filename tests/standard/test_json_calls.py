"""Calls in a family without a grammar for its format: forced calls are JSON, other calls native text.

The server has the target's model and seed_oss's parser, whose markers any tokenizer can encode.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.behaviours.stop_strings import AND_ON
from tests.chat_api import ASK, FREE, NOW, ChoiceOutput, function, named, output_of, streamed
from tests.messages_api import Messages, messages_on, text_of
from tests.own_server import OwnServer
from vllm_harness import known_defect
from vllm_harness._protocol import validate_body, validate_stream
from vllm_harness._scripted.book import Raw, ScriptBook
from vllm_harness._server.remote import RemoteServer

pytestmark = [pytest.mark.vllm_standard, pytest.mark.vllm_scripted, pytest.mark.vllm_model("qwen3")]

END = "<|im_end|>"
BOTH = '[{"name": "get_weather", "parameters": {"city": "Zürich"}}, {"name": "now", "parameters": {}}]'
TEMPLATE = """\
{%- if reasoning_effort == "none" %}{{ raise_exception("none is no effort of this model") }}{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
"""
SET = function("set", {"x": {"type": "number"}, "name": {"type": "string"}})


def native(x: str) -> str:
    """Returns a call to SET in seed_oss's native format."""
    arguments = f"<parameter=x>{x}</parameter>\n<parameter=name>Zürich</parameter>"
    return f"<seed:tool_call>\n<function=set>\n{arguments}\n</function>\n</seed:tool_call>"


@pytest.fixture
def bare_server(_vllm_target_server: RemoteServer, own_server: OwnServer) -> Callable[..., RemoteServer]:
    """Starts a server for the target's model entry with these flags and only these parsers."""
    none = {"tool_call_parser": None, "reasoning_parser": None}
    entry = _vllm_target_server.entry
    return lambda flags=(), **parsers: own_server(flags, entry=entry.model_copy(update={**none, **parsers}))


@pytest.fixture
def server(bare_server: Callable[..., RemoteServer], template: Path) -> RemoteServer:
    """A server with seed_oss's tool parser and no reasoning parser; it streams 24 tokens per chunk."""
    flags = ["--chat-template", str(template), "--stream-interval", "24"]
    return bare_server(flags, tool_call_parser="seed_oss")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chat template that accepts every effort except `none`."""
    path = tmp_path_factory.mktemp("template") / "effort.jinja"
    path.write_text(TEMPLATE)
    return path


@pytest.fixture
def client(book: ScriptBook) -> Iterator[OpenAI]:
    """A client whose requests the script book answers."""
    with book.client() as client:
        yield client


def body(client: OpenAI, server: RemoteServer, **request: Any) -> ChoiceOutput:
    """Returns the output in the body of a chat completion."""
    answer: Any = client.chat.completions.create(model=server.model, messages=ASK, temperature=0, **request)
    assert not [finding for finding in validate_body(answer, request=request) if finding.counts]
    return output_of(answer)


def stream(client: OpenAI, server: RemoteServer, **request: Any) -> ChoiceOutput:
    """Returns the output in the stream of a chat completion."""
    request = {**request, "stream": True}
    chunks = list(client.chat.completions.create(model=server.model, messages=ASK, temperature=0, **request))
    assert not [finding for finding in validate_stream(chunks, request=request) if finding.counts]
    return streamed(chunks)


@pytest.mark.covers("VC-015")
def test_required_calls(client: OpenAI, server: RemoteServer, book: ScriptBook) -> None:
    """The model may call several tools, and the arguments come back exactly as written."""
    book.script(Raw(BOTH + END))
    said = body(client, server, tools=[NOW, FREE], tool_choice="required")
    assert said.calls == (("get_weather", '{"city": "Zürich"}'), ("now", "{}"))
    assert said.finish == "tool_calls"


@pytest.mark.covers("VC-015")
@known_defect("engine-required-json-calls-do-not-stream")
def test_required_calls_streamed(client: OpenAI, server: RemoteServer, book: ScriptBook) -> None:
    """The arguments are so long that even a busy server does not send both calls in one delta."""
    city = ", ".join(["Zürich"] * 300)
    book.script(Raw(BOTH.replace("Zürich", city) + END))
    said = stream(client, server, tools=[NOW, FREE], tool_choice="required", max_tokens=4000)
    assert said.calls == (("get_weather", json.dumps({"city": city}, ensure_ascii=False)), ("now", "{}"))


@pytest.mark.covers("VC-015", "VT-007")
@pytest.mark.parametrize(
    ("said", "more", "at"),
    [
        ("[]", {}, 0),
        ("It rains.", {}, 0),
        ('[{"name": "never_heard_of", "parameters": {}}]', {}, None),
        (BOTH, {"parallel_tool_calls": False}, 19),
    ],
    ids=["none", "text", "unknown", "second of one"],
)
def test_required_refuses(
    said: str, more: Any, at: int | None, client: OpenAI, server: RemoteServer, book: ScriptBook
) -> None:
    """The grammar refuses an empty list, text, an unknown tool, and a second call without parallel calls."""
    book.script(Raw(said + END), expect="refused")
    with pytest.raises(openai.APIError, match=f"was refused at token {'' if at is None else at}"):
        body(client, server, tools=[NOW, FREE], tool_choice="required", **more)


@pytest.mark.covers("VR-067", "LS-013")
@pytest.mark.parametrize("stream", [False, True])
def test_one_call_at_most_over_responses(
    stream: bool, client: OpenAI, server: RemoteServer, book: ScriptBook
) -> None:
    """No grammar prevents a second call, so the server omits it."""
    book.script(Raw(native("1") + native("2") + END))
    tool = {"type": "function", **SET["function"]}
    request: Any = {"model": server.model, "input": "Set it.", "tools": [tool], "parallel_tool_calls": False}
    answer: Any = client.responses.create(**request, stream=stream)
    response = list(answer)[-1].response if stream else answer
    assert [item.name for item in response.output if item.type == "function_call"] == ["set"]


@pytest.mark.covers("VT-007")
@pytest.mark.parametrize("stream", [False, True])
def test_one_call_at_most_over_chat(
    stream: bool, client: OpenAI, server: RemoteServer, book: ScriptBook
) -> None:
    """If the model makes several calls, only the first is returned."""
    book.script(Raw(native("1") + native("2") + END))
    request: Any = {"tools": [SET], "parallel_tool_calls": False}
    if stream:
        chunks: Any = client.chat.completions.create(model=server.model, messages=ASK, stream=True, **request)
        output = streamed(list(chunks))
    else:
        output = body(client, server, **request)
    assert output.arguments == [{"x": 1, "name": "Zürich"}]


@pytest.mark.covers("VR-006")
@pytest.mark.parametrize("text", ["It is 3 <", "It is 3 <seed:tool_call"])
def test_text_like_a_marker_ends_a_response(
    text: str, client: OpenAI, server: RemoteServer, book: ScriptBook
) -> None:
    """Text that looks like the start of a marker is released at the end of the stream."""
    book.script(Raw(text + END))
    tool: Any = {"type": "function", **SET["function"]}
    events: Any = list(
        client.responses.create(model=server.model, input="How many?", tools=[tool], stream=True)
    )
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == text
    assert events[-1].response.output_text == text


@pytest.mark.covers("VC-015", "VC-017")
def test_named_call(client: OpenAI, server: RemoteServer, book: ScriptBook) -> None:
    """The model writes only the arguments; body and stream contain the same call."""
    book.script(Raw('{"city": "Zürich"}' + END), times=2)
    request = {"tools": [NOW, FREE], "tool_choice": named("get_weather")}
    said = body(client, server, **request)
    assert said.calls == (("get_weather", '{"city": "Zürich"}'),)
    assert stream(client, server, **request) == said


@pytest.mark.covers("VC-019")
def test_named_call_without_arguments_is_none(client: OpenAI, server: RemoteServer, book: ScriptBook) -> None:
    """If a stop string ends the call at its first character, no call is returned."""
    book.script(Raw(f'{{"city": "Zürich{AND_ON}"}}{END}'), expect="cut")
    said = body(client, server, tools=[FREE], tool_choice=named("get_weather"), stop=["{"])
    assert (said.content, said.calls) == ("", ())


@pytest.mark.covers("VR-060")
def test_named_custom_tool(client: OpenAI, server: RemoteServer, book: ScriptBook) -> None:
    book.script(Raw('{"input": "Zürich"}' + END))
    response = client.responses.create(
        model=server.model,
        input="Hi",
        tools=[{"type": "custom", "name": "note", "description": "Notes"}],
        tool_choice={"type": "custom", "name": "note"},
    )
    assert [(item.type, item.name, item.input) for item in response.output] == [  # type: ignore[union-attr]
        ("custom_tool_call", "note", "Zürich")
    ]


@pytest.mark.covers("VC-018", "VT-009")
@pytest.mark.parametrize("definitions", [([1],), ({"d": {"type": "string"}}, {"d": {"type": "number"}})])
def test_definitions_that_are_none_or_differ(
    definitions: tuple[Any, ...], client: OpenAI, server: RemoteServer
) -> None:
    tools = [function(f"f{number}", **{"$defs": each}) for number, each in enumerate(definitions)]
    with pytest.raises(openai.BadRequestError) as refused:
        body(client, server, tools=tools, tool_choice="required")
    error: Any = refused.value.body
    assert error["param"] == "tools"


@pytest.mark.covers("VC-015")
@pytest.mark.parametrize(
    ("x", "value"), [("5", 5), ("2.50", 2.5), ("inf", "inf"), ("-1e999", "-1e999"), ("nan", "nan")]
)
def test_numbers_of_a_native_call(
    x: str, value: Any, client: OpenAI, server: RemoteServer, book: ScriptBook
) -> None:
    """A number that JSON cannot express stays a string, and the call is not lost."""
    book.script(Raw(native(x) + END), times=2)
    said = body(client, server, tools=[SET])
    assert said.arguments == [{"x": value, "name": "Zürich"}]
    assert stream(client, server, tools=[SET]) == said


@pytest.mark.covers("VC-015")
@pytest.mark.parametrize("request_", [{"tools": [SET], "tool_choice": "none"}, {}], ids=["none", "no tools"])
def test_native_call_where_none_is_allowed(
    request_: dict[str, Any], client: OpenAI, server: RemoteServer, book: ScriptBook
) -> None:
    """With `tool_choice: none` or without tools, a native call appears neither as text nor as a call."""
    book.script(Raw(f"Hm. {native('5')}{END}"), times=2)
    for said in (body(client, server, **request_), stream(client, server, **request_)):
        assert replace(said, content=said.content.strip()) == ChoiceOutput("Hm.", "", (), "stop")


@pytest.mark.covers("VC-013")
def test_marks_of_reasoning_are_text_without_its_parser(
    client: OpenAI, server: RemoteServer, book: ScriptBook
) -> None:
    text = "<seed:think>Hm.</seed:think> Rain."
    book.script(Raw(text + END), times=2)
    assert body(client, server, tools=[SET]).content == text
    assert stream(client, server, tools=[SET]).content == text


@pytest.mark.covers("VC-013")
def test_hidden_thoughts_of_a_parser_that_reads_all(
    bare_server: Callable[..., RemoteServer], template: Path
) -> None:
    """Hidden reasoning is omitted whatever else its chunk contains, and nothing else is omitted."""
    flags = ["--chat-template", str(template)]
    server = bare_server(flags, tool_call_parser="seed_oss", reasoning_parser="seed_oss")
    book = ScriptBook(server.endpoint, server.entry)
    book.script(Raw(f"Let me see.</seed:think>Hm. {native('5')}{END}"), times=None)
    with book.client() as client:
        for request in ({"tools": [SET]}, {}):
            for tokens in (1, 3, 1000):
                asked = {**request, "extra_body": {"stream_interval": tokens}}
                shown = stream(client, server, **asked)
                asked["extra_body"]["include_reasoning"] = False
                assert shown.reasoning == "Let me see."
                assert stream(client, server, **asked) == replace(shown, reasoning="")
    book.close()


@pytest.mark.covers("VC-019")
def test_call_that_ends_before_its_name(client: OpenAI, server: RemoteServer, book: ScriptBook) -> None:
    """The markup of a truncated call does not appear as text."""
    book.script(Raw(f"Hm. <seed:tool_call>\n<func{END}"), times=2)
    said = body(client, server, tools=[SET])
    assert said == ChoiceOutput("Hm. ", "", (), "stop")
    assert stream(client, server, tools=[SET]) == said


@pytest.fixture
def messages(server: RemoteServer, book: ScriptBook, request: pytest.FixtureRequest) -> Iterator[Messages]:
    """The server's Messages API."""
    with messages_on(book.endpoint, server.model, request.getfixturevalue) as messages:
        yield messages


@pytest.mark.covers("VA-013", "VA-019")
@pytest.mark.parametrize("ends", ["end_turn", "stop_sequence"])
def test_text_after_a_call_over_messages(ends: str, messages: Messages, book: ScriptBook) -> None:
    """The call is complete and the stop reason is `tool_use`, wherever a chunk of the stream ends."""
    tool = {"name": "set", "input_schema": SET["function"]["parameters"]}
    stopped = ends == "stop_sequence"
    for digits in range(1, 9):
        x = 10**digits + 1
        text = f"There STOP it goes{AND_ON}" if stopped else "There it goes."
        book.script(Raw(native(str(x)) + text + END), expect="cut" if stopped else "done")
        stream = messages.stream("Set it.", tools=[tool], stop_sequences=["STOP"])
        (call,) = (block for block in stream.message["content"] if block["type"] == "tool_use")
        assert call["input"] == {"x": x, "name": "Zürich"}
        assert stream.message["stop_reason"] == "tool_use"


@pytest.mark.covers("VA-021")
def test_thinking_disabled_where_the_template_refuses_it(messages: Messages, book: ScriptBook) -> None:
    """`thinking: disabled` is accepted although the template cannot disable thinking."""
    book.script(Raw("Rain." + END))
    assert text_of(messages.create("Hi", thinking={"type": "disabled"})) == "Rain."


@pytest.mark.covers("VC-024")
@pytest.mark.parametrize("tokens", [1, 3, 1000])
@pytest.mark.parametrize("text", ["Rain <", "<", "<tool_call", "Rain."])
def test_text_like_a_marker_after_the_thoughts(
    text: str, tokens: int, bare_server: Callable[..., RemoteServer]
) -> None:
    """With a reasoning parser and no tool parser, all of the text is returned by the end of the stream."""
    server = bare_server(reasoning_parser="qwen3")
    book = ScriptBook(server.endpoint, server.entry)
    book.script(Raw(f"<think>\nHm.\n</think>{text}{END}"), times=2)
    with book.client() as client:
        said = body(client, server)
        assert said.content == text
        assert stream(client, server, extra_body={"stream_interval": tokens}) == said
    book.verify()
    book.close()
