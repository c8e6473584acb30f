"""Built-in tools of gpt-oss, run by a real MCP tool server (`--tool-server host:port`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from tests.behaviours.test_responses_background import replay
from tests.behaviours.tools import CALL, INTERPRETER, RESPONSES_TOOL
from tests.own_server import OwnServer
from tests.responses_api import SHOW, Responses, Stream, messages_of, prompt_of, shape
from tests.tool_server.running import ToolServer
from vllm_harness._exchange.server import VllmServer
from vllm_harness._scripted.book import Content, Raw, ScriptBook, When
from vllm_harness._server.remote import RemoteServer
from vllm_harness._testing.fixtures import ScriptWriter
from vllm_harness._testing.session import BODY

pytestmark = [
    pytest.mark.vllm_harmony,
    pytest.mark.vllm_scripted,
    pytest.mark.vllm_model("gpt-oss"),
    pytest.mark.vllm_needs("mcp", "responses"),
    pytest.mark.timeout(400),
]

CODE = "print(6 * 7)"
ANSWER = "It is 42."
SEARCH: dict[str, Any] = {"type": "web_search_preview"}
LABELS = {"VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS": "code_interpreter,container,web_search_preview"}
RETRY = {"VLLM_TOOL_JSON_ERROR_AUTOMATIC_RETRY": "1"}
BAD_JSON = '{"cmd": ["echo"'
KEY = "s3cret"


def runs(code: str, channel: str = "commentary") -> Raw:
    """A script in which the model sends code to the python tool."""
    return Raw(f"<|channel|>{channel} to=python code<|message|>{code}<|call|>")


def calls(tool: str, arguments: str) -> Raw:
    """A script in which the model calls a tool, such as `browser.search`, with JSON arguments."""
    return Raw(f"<|channel|>commentary to={tool} <|constrain|>json<|message|>{arguments}<|call|>")


def mcp(label: str = "code_interpreter", **more: Any) -> dict[str, Any]:
    """Requests a built-in tool as an MCP tool; vLLM uses the server's flag instead of this `server_url`."""
    return {"type": "mcp", "server_label": label, "server_url": "http://127.0.0.1:9/sse", **more}


def container(**more: Any) -> dict[str, Any]:
    """Requests the container tool, whose server requires a key."""
    return mcp("container", headers={"Authorization": f"Bearer {KEY}"}, **more)


@dataclass(frozen=True)
class Tools:
    """The tool servers that a vLLM server was started with."""

    python: ToolServer
    container: ToolServer
    browser: ToolServer

    @property
    def flag(self) -> list[str]:
        """vLLM's `--tool-server` flag with the addresses of the tool servers."""
        return [
            "--tool-server",
            ",".join(tool.address for tool in (self.python, self.container, self.browser)),
        ]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    """The running tool servers."""
    folder = tmp_path_factory.mktemp("tools")
    with (
        ToolServer("python", folder) as python,
        ToolServer("container", folder, key=KEY) as container,
        ToolServer("browser", folder) as browser,
    ):
        yield Tools(python, container, browser)


@dataclass(frozen=True)
class Talk:
    """A vLLM server with tools, its API, and the script book of one test."""

    server: RemoteServer
    api: Responses
    book: ScriptBook

    @property
    def script(self) -> Callable[..., Any]:
        """Scripts what the model says; the script must be used by the end of the test."""
        return self.book.script

    def script_if_reached(self, *turns: Content) -> None:
        """Scripts the model's answer to `Go`, which the server may refuse before it generates anything."""
        unheard = ScriptBook(self.server.endpoint, self.server.entry, name=self.book.name)
        unheard.script(name="unheard", turns=list(turns), times=None, when=When(user="^Go$"))

    def script_turns(self, *turns: Content, times: int = 1) -> None:
        """Scripts the generations within one request, one generation per turn."""
        self.script(turns=list(turns), times=times)

    def still_serves(self) -> None:
        """Checks that an ordinary request is answered."""
        self.script("Still here.", when=When(user="Are you there"))
        assert self.api.create("Are you there?").output_text == "Still here."


@pytest.fixture
def talk_to(own_server: OwnServer, request: pytest.FixtureRequest) -> Iterator[Callable[..., Talk]]:
    """Starts a server with given flags and variables; all its scripts must be used by the end of the test."""
    books: list[ScriptBook] = []

    def open_talk(flags: list[str], env: dict[str, str]) -> Talk:
        server = own_server(flags, env)
        book = ScriptBook(server.endpoint, server.entry)
        books.append(book)
        api = Responses(book.client(timeout=60), server.model, request.getfixturevalue)
        return Talk(server, api, book)

    yield open_talk
    if request.node.stash.get(BODY, None) == "passed":
        for book in books:
            book.verify()


@pytest.fixture
def talk(talk_to: Callable[..., Talk], tools: Tools) -> Talk:
    """The server that most of these tests share."""
    for tool in (tools.python, tools.container, tools.browser):
        tool.forget()
    return talk_to(tools.flag, LABELS)


def outputs(response: Response) -> list[dict[str, Any]]:
    """The output messages of the model and the tools, in vLLM's format."""
    return messages_of(response, "output")


def from_tool(response: Response) -> list[str]:
    """The outputs of tools that the response contains."""
    return [
        "".join(part["text"] for part in message["content"])
        for message in outputs(response)
        if (message.get("author") or message)["role"] == "tool"
    ]


def of_usage(response: Response) -> dict[str, Any]:
    """The response's details about output tokens."""
    assert response.usage is not None
    return response.usage.output_tokens_details.model_dump()


@pytest.mark.covers("VR-040", "VM-003", "VM-010")
def test_code_interpreter(talk: Talk, tools: Tools) -> None:
    talk.script_turns(runs(CODE), ANSWER)
    response = talk.api.create("What is six times seven?", tools=[INTERPRETER], extra_body=SHOW)
    assert response.status == "completed"
    assert response.output_text == ANSWER
    assert [call["code"] for call in tools.python.journal("python")] == [CODE]
    assert from_tool(response) == ["42\n"]
    recipients = [message.get("recipient") for message in outputs(response)]
    assert recipients[0] == "python"
    assert "developer" not in [(each.get("author") or each)["role"] for each in messages_of(response)]


@pytest.mark.covers("VM-010", "VR-040")
def test_tokens_of_the_tools_output(talk: Talk) -> None:
    """Tool output is counted separately for each turn, and a longer output has a higher count."""
    counted = []
    for code in (CODE, "print('word ' * 50)"):
        talk.script_turns(runs(code), ANSWER)
        response = talk.api.create("Go", tools=[INTERPRETER])
        details = of_usage(response)
        assert details["tool_output_tokens"] == sum(details["tool_output_tokens_per_turn"]) > 0
        assert details["tool_output_tokens_per_turn"][0] == 0
        assert len(details["output_tokens_per_turn"]) == 2
        assert response.usage is not None
        assert response.usage.output_tokens == sum(details["output_tokens_per_turn"])
        assert response.usage.input_tokens == sum(response.usage.input_tokens_details.input_tokens_per_turn)  # type: ignore[attr-defined]
        counted.append(details["tool_output_tokens"])
    assert counted[1] > counted[0] + 40


@pytest.mark.covers("VM-010", "VR-040")
@pytest.mark.parametrize("stream", [False, True])
def test_tokens_of_the_tools_output_are_not_those_of_the_model(stream: bool, talk: Talk) -> None:
    """Longer code adds to the model's tokens, but not to the tokens of a tool output that is the same."""
    usages = []
    for code in (CODE, f"{CODE}  # {'a comment ' * 20}"):
        talk.script_turns(runs(code), ANSWER)
        ask = talk.api.stream if stream else talk.api.create
        answer: Any = ask("Go", tools=[INTERPRETER])
        usages.append(of_usage(answer.terminal if stream else answer))
    assert usages[0]["tool_output_tokens_per_turn"] == usages[1]["tool_output_tokens_per_turn"]
    assert usages[0]["tool_output_tokens"] == usages[1]["tool_output_tokens"]
    assert usages[0]["output_tokens_per_turn"][0] + 20 < usages[1]["output_tokens_per_turn"][0]


@pytest.mark.covers("VR-047", "VR-038", "VM-005", "AG-006")
def test_code_interpreter_streamed(talk: Talk, tools: Tools) -> None:
    talk.script_turns(runs(CODE), ANSWER)
    stream = talk.api.stream("What is six times seven?", tools=[INTERPRETER])
    assert [call["code"] for call in tools.python.journal("python")] == [CODE]
    added = [event.item for event in stream.of("output_item.added")]
    assert [item.type for item in added] == ["code_interpreter_call", "message"]
    assert added[0].status == "in_progress"
    assert stream.joined("code_interpreter_call_code") == CODE
    assert stream.of("code_interpreter_call_code.done")[0].code == CODE
    done = stream.of("output_item.done")[0].item
    assert (done.type, done.status, done.code) == ("code_interpreter_call", "completed", CODE)
    assert stream.terminal.output_text == ANSWER


@pytest.mark.covers("VM-005", "VR-047")
@pytest.mark.vllm_known_defect("code-interpreter-call-becomes-reasoning")
def test_code_interpreter_in_both_ways(talk: Talk) -> None:
    talk.script_turns(runs(CODE), ANSWER, times=2)
    body = talk.api.create("What is six times seven?", tools=[INTERPRETER])
    stream = talk.api.stream("What is six times seven?", tools=[INTERPRETER])
    assert [item.type for item in body.output] == ["code_interpreter_call", "message"]
    assert shape(stream.terminal) == shape(body)


@pytest.mark.covers("VM-006", "VR-038")
def test_turns_with_tools(talk: Talk, tools: Tools) -> None:
    """The second turn's prompt contains the first question and answer, and its tool call works too."""
    talk.script_turns(runs(CODE), ANSWER)
    first = talk.api.create("What is six times seven?", tools=[INTERPRETER], extra_body=SHOW)
    talk.script_turns(runs("print(42 + 1)"), "Then 43.")
    second = talk.api.create(
        "And one more?", previous_response_id=first.id, tools=[INTERPRETER], extra_body=SHOW
    )
    assert second.output_text == "Then 43."
    assert from_tool(second) == ["43\n"]
    assert "What is six times seven?" in prompt_of(second)
    assert ANSWER in prompt_of(second)
    assert len(tools.python.journal("python")) == 2


@pytest.mark.covers("VM-010", "VM-006")
def test_calls_one_after_the_other(talk: Talk, tools: Tools) -> None:
    """The model makes several calls, one after the other, within one request."""
    talk.script_turns(runs("print(1)"), runs("print(2)", "analysis"), runs("print(3)"), "Three.")
    stream = talk.api.stream("Count", tools=[INTERPRETER])
    assert [call["code"] for call in tools.python.journal("python")] == ["print(1)", "print(2)", "print(3)"]
    assert [event.item.type for event in stream.of("output_item.done")] == [
        *["code_interpreter_call"] * 3,
        "message",
    ]
    assert len(of_usage(stream.terminal)["tool_output_tokens_per_turn"]) == 4


@pytest.mark.covers("VM-010", "VR-013")
def test_limit_holds_after_a_tool_has_run(talk: Talk) -> None:
    talk.script_if_reached(runs("print(1)"), "word " * 100)
    response = talk.api.create("Go", tools=[INTERPRETER], max_output_tokens=40)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


@pytest.mark.covers("VM-010", "LS-025", "VR-075")
@pytest.mark.vllm_known_defect("max-tool-calls-is-ignored")
@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
def test_max_tool_calls(stream: bool, talk: Talk, tools: Tools) -> None:
    """With a limit of one tool call, the second call is not executed."""
    talk.script_turns(runs("print(1)"), runs("print(2)"), ANSWER)
    request: Any = {"tools": [INTERPRETER], "max_tool_calls": 1}
    api = talk.api
    response = api.stream("Count", **request).terminal if stream else api.create("Count", **request)
    assert len(tools.python.journal("python")) == 1
    assert response.max_tool_calls == 1


@pytest.mark.covers("VM-010")
def test_error_of_the_code_goes_to_the_model(talk: Talk) -> None:
    talk.script_turns(runs("1 / 0"), "That cannot be.")
    response = talk.api.create("Divide", tools=[INTERPRETER], extra_body=SHOW)
    assert response.output_text == "That cannot be."
    assert "ZeroDivisionError" in from_tool(response)[0]


@pytest.mark.covers("VM-010")
def test_error_of_the_tool_goes_to_the_model(talk: Talk) -> None:
    talk.script_turns(calls("container.exec", '{"cmd": ["rm", "x"]}'), "It has no rm.")
    response = talk.api.create("Remove x", tools=[container()], extra_body=SHOW)
    assert response.output_text == "It has no rm."
    assert "command not found" in from_tool(response)[0]


@pytest.mark.covers("VM-004", "VM-010")
@pytest.mark.parametrize("allowed", [None, ["*"], ["exec"]], ids=["absent", "star", "listed"])
def test_tool_of_a_container(allowed: Any, talk: Talk, tools: Tools) -> None:
    talk.script_turns(calls("container.exec", '{"cmd": ["echo", "hello"]}'), "It said hello.")
    tool = container(**({} if allowed is None else {"allowed_tools": allowed}))
    response = talk.api.create("Say hello", tools=[tool], extra_body=SHOW)
    assert response.output_text == "It said hello."
    assert [call["cmd"] for call in tools.container.journal("exec")] == [["echo", "hello"]]
    assert from_tool(response) == ["hello"]


@pytest.mark.covers("VM-002", "VM-004", "VR-068")
@pytest.mark.parametrize(
    ("allowed", "named"),
    [
        (None, {"exec", "feed"}),
        (["*"], {"exec", "feed"}),
        (["exec"], {"exec"}),
        ({"tool_names": ["feed"]}, {"feed"}),
        (["no_such_tool"], set()),
    ],
    ids=["absent", "star", "list", "object", "unknown"],
)
def test_allowed_tools_are_in_the_prompt(allowed: Any, named: set[str], talk: Talk) -> None:
    talk.script(ANSWER)
    tool = container(**({} if allowed is None else {"allowed_tools": allowed}))
    response = talk.api.create("Hi", tools=[tool], extra_body=SHOW)
    system = json.dumps(messages_of(response)[0])
    assert {name for name in ("exec", "feed") if f'"{name}"' in system} == named


@pytest.mark.covers("VM-002")
def test_schema_of_the_python_tool_stays_out_of_the_prompt(talk: Talk) -> None:
    """The prompt has the tool's description, but not its schema (`include_in_prompt: false`)."""
    talk.script(ANSWER)
    response = talk.api.create("Hi", tools=[INTERPRETER], extra_body=SHOW)
    system = json.dumps(messages_of(response)[0])
    assert "Nothing is kept between calls" in system
    assert "Runs Python code" not in system


@pytest.mark.covers("VR-068", "VM-009")
def test_one_session_a_request(talk: Talk, tools: Tools) -> None:
    """Each request opens one session, with its own id, per requested tool, and no session for other tools."""
    for _ in range(2):
        talk.script_turns(runs(CODE), runs(CODE), ANSWER)
        talk.api.create("Go", tools=[INTERPRETER])
    sessions = tools.python.journal("session")
    assert len(sessions) == len({session["id"] for session in sessions}) == 2
    assert not tools.container.journal("session")
    talk.script(ANSWER)
    talk.api.create("Hi", tools=[RESPONSES_TOOL])
    assert len(tools.python.journal("session")) == 2


@pytest.mark.covers("VR-046")
def test_function_calls_have_no_events_of_built_in_tools(talk: Talk, tools: Tools) -> None:
    talk.script(calls=[CALL])
    stream = talk.api.stream("Weather?", tools=[RESPONSES_TOOL])
    assert [item.type for item in stream.terminal.output] == ["function_call"]
    assert not [kind for kind in stream.types if "code_interpreter" in kind or "mcp" in kind]
    assert not tools.python.journal("python")


@pytest.mark.covers("VR-046", "VM-010")
def test_built_in_tool_beside_a_function(talk: Talk, tools: Tools) -> None:
    """The server runs its own tool and returns the function call to the client."""
    talk.script_turns(
        runs(CODE),
        calls("functions.get_weather", CALL.arguments_json),
    )
    stream = talk.api.stream("Go", tools=[INTERPRETER, RESPONSES_TOOL])
    assert [event.item.type for event in stream.of("output_item.done")] == [
        "code_interpreter_call",
        "function_call",
    ]
    assert len(tools.python.journal("python")) == 1


@pytest.mark.covers("VM-010", "VM-006")
def test_both_built_in_tools_of_one_request(talk: Talk, tools: Tools) -> None:
    talk.script_turns(calls("browser.search", '{"query": "Paris"}'), runs(CODE), ANSWER)
    response = talk.api.create("Go", tools=[SEARCH, INTERPRETER])
    assert [call["query"] for call in tools.browser.journal("search")] == ["Paris"]
    assert [call["code"] for call in tools.python.journal("python")] == [CODE]
    assert response.output_text == ANSWER


@pytest.mark.covers("VM-008", "VM-001")
def test_tool_that_was_not_asked_for_is_not_run(talk: Talk, tools: Tools) -> None:
    """A call of a tool that is not offered in the request is not executed."""
    talk.script(runs(CODE))
    response = talk.api.create("Go", extra_body=SHOW)
    assert response.status == "completed"
    assert not tools.python.journal("python")
    assert "python" not in prompt_of(response)
    assert "browser" not in prompt_of(response)
    talk.still_serves()


@pytest.mark.covers("VM-008", "VM-001")
def test_label_that_is_not_listed_turns_no_tool_on(talk_to: Callable[..., Talk], tools: Tools) -> None:
    """Without labels in the environment variable, no tool is named in the prompt or executed."""
    tools.python.forget()
    talk = talk_to(tools.flag, {})
    talk.script_if_reached(runs(CODE), ANSWER)
    answer = talk.api.post({**talk.api.request("Go", {"tools": [mcp()]}), **SHOW})
    assert answer.status_code in (200, 400)
    assert not tools.python.journal("python")
    if answer.status_code == 200:
        assert "python" not in str(answer.json()["input_messages"])


@pytest.mark.covers("VM-008", "VR-060")
def test_built_in_tool_that_is_required(talk: Talk, tools: Tools) -> None:
    """With `required`, the grammar permits a call of the built-in tool, but no answer after the call."""
    talk.script_if_reached(runs(CODE), ANSWER)
    with pytest.raises(openai.APIError, match="was refused at token"):
        talk.api.create("Go", tools=[INTERPRETER], tool_choice="required")
    assert tools.python.journal("python")


@pytest.mark.covers("VM-008", "vllm-41902")
@pytest.mark.vllm_known_defect("chat-drops-other-harmony-recipients")
def test_built_in_call_over_chat_leaves_a_sign(talk: Talk) -> None:
    """Over Chat Completions, the server does not run the tool, but the text of the call must not be lost."""
    talk.script(runs(CODE))
    chat = talk.api.client.chat.completions.create(
        model=talk.server.model, messages=[{"role": "user", "content": "Go"}]
    )
    assert CODE in chat.choices[0].message.model_dump_json()


@pytest.mark.covers("VR-039", "VM-010")
@pytest.mark.vllm_known_defect("browser-call-is-two-items-at-one-index")
@pytest.mark.vllm_known_defect("web-search-query-in-the-body")
def test_web_search_streamed(talk: Talk, tools: Tools) -> None:
    talk.script_turns(calls("browser.search", '{"query": "capital: Paris?"}'), "Paris it is.")
    stream = talk.api.stream("Search", tools=[SEARCH])
    assert [call["query"] for call in tools.browser.journal("search")] == ["capital: Paris?"]
    searches = [event.item for event in stream.of("output_item.done") if event.item.type == "web_search_call"]
    assert [search.action.query for search in searches] == ["capital: Paris?"]
    assert stream.terminal.output_text == "Paris it is."


@pytest.mark.covers("VR-039")
@pytest.mark.vllm_known_defect("web-search-query-in-the-body")
def test_web_search_in_one_piece(talk: Talk) -> None:
    talk.script_turns(calls("browser.search", '{"query": "Paris"}'), "Paris it is.")
    response = talk.api.create("Search", tools=[SEARCH])
    search = response.output[0]
    assert search.type == "web_search_call"
    assert search.action.type == "search"
    assert search.action.query == "Paris"


@pytest.mark.covers("VR-039")
def test_search_within_a_page(talk: Talk, tools: Tools) -> None:
    talk.script_turns(calls("browser.find", '{"pattern": "Seine", "url": "paris.example"}'), "It is there.")
    response = talk.api.create("Find", tools=[SEARCH])
    assert [call["pattern"] for call in tools.browser.journal("find")] == ["Seine"]
    assert response.output[0].type == "web_search_call"
    assert response.output[0].action.type == "find_in_page"
    assert response.output[0].action.pattern == "Seine"
    assert response.output_text == "It is there."


@pytest.mark.covers("VR-039")
@pytest.mark.parametrize("where", [{"id": 1}, {"id": 1, "cursor": 0}, {"url": "paris.example"}], ids=str)
def test_page_is_opened(where: dict[str, Any], talk: Talk, tools: Tools) -> None:
    """Opens a page by its number in the search results or by its address."""
    talk.script_turns(calls("browser.open", json.dumps(where)), "It is there.", times=2)
    body = talk.api.create("Open", tools=[SEARCH])
    with talk.api.client.responses.create(
        **talk.api.request("Open", {"stream": True, "tools": [SEARCH]})
    ) as stream:
        last: Any = list(stream)[-1]
    opened = [{key: call[key] for key in where} for call in tools.browser.journal("open")]
    assert opened == [where, where]
    for response in (body, last.response):
        assert response.output[0].type == "web_search_call"
        assert response.output[0].action.type == "open_page"
        assert response.output_text == "It is there."


@pytest.mark.covers("VR-038", "VM-005", "VM-006")
@pytest.mark.vllm_needs("background", "store")
@pytest.mark.parametrize(
    ("tool", "call"),
    [(INTERPRETER, runs(CODE)), (SEARCH, calls("browser.search", '{"query": "Paris"}'))],
    ids=["code", "search"],
)
def test_tool_in_the_background_and_replayed(tool: dict[str, Any], call: Raw, talk: Talk) -> None:
    """The stream of a background response with a tool call can be replayed from each event."""
    talk.script_turns(call, ANSWER)
    request = talk.api.request("Go", {"background": True, "stream": True, "tools": [tool]})
    with talk.api.client.responses.create(**request) as running:
        events = [event.to_dict() for event in running]
    response_id = events[0]["response"]["id"]
    assert replay(talk.api, response_id, None) == events
    for place in range(len(events) - 1):
        assert replay(talk.api, response_id, place) == events[place + 1 :]
    assert talk.api.client.responses.retrieve(response_id).output_text == ANSWER


def failed_cleanly(stream: Stream) -> bool:
    """Whether a stream ends with a failure event, as OpenAI's streams do."""
    return stream.types[-1] in ("response.failed", "error")


@pytest.mark.covers("VM-010")
def test_bad_json_in_one_piece(talk: Talk) -> None:
    """The client gets an error object, the request does not hang, and the server still serves."""
    talk.script_if_reached(calls("container.exec", BAD_JSON), ANSWER)
    with pytest.raises(openai.APIStatusError) as caught:
        talk.api.create("Go", tools=[container()])
    assert caught.value.status_code >= 400
    assert caught.value.message
    talk.still_serves()


@pytest.mark.covers("VM-010")
@pytest.mark.vllm_known_defect("vllm-38190")
def test_bad_json_streamed(talk: Talk) -> None:
    talk.script_if_reached(calls("container.exec", BAD_JSON), ANSWER)
    assert failed_cleanly(talk.api.stream("Go", tools=[container()]))


@pytest.mark.covers("VM-010")
@pytest.mark.parametrize("stream", [False, True])
def test_bad_json_goes_back_to_the_model(stream: bool, talk_to: Callable[..., Talk], tools: Tools) -> None:
    """With VLLM_TOOL_JSON_ERROR_AUTOMATIC_RETRY, the model gets the error and tries again."""
    talk = talk_to(tools.flag, {**LABELS, **RETRY})
    tools.container.forget()
    good = calls("container.exec", '{"cmd": ["echo", "hello"]}')
    talk.script_turns(calls("container.exec", BAD_JSON), good, "It said hello.")
    if stream:
        response = talk.api.stream("Say hello", tools=[container()], extra_body=SHOW).terminal
    else:
        response = talk.api.create("Say hello", tools=[container()], extra_body=SHOW)
    assert response.output_text == "It said hello."
    outputs = from_tool(response)
    assert "Error parsing tool arguments as JSON" in outputs[0]
    assert outputs[1] == "hello"
    assert len(tools.container.journal("exec")) == 1


@pytest.mark.covers("VM-010")
def test_tool_server_down(talk: Talk, tools: Tools) -> None:
    """The request fails while the tool server is down; the tool works again once the server is back."""
    talk.script_if_reached(runs(CODE), ANSWER)
    tools.python.stop()
    try:
        with pytest.raises(openai.APIStatusError) as caught:
            talk.api.create("Go", tools=[INTERPRETER])
        assert caught.value.status_code >= 500 or caught.value.status_code == 424
        talk.still_serves()
    finally:
        tools.python.start()
    talk.script_turns(runs(CODE), ANSWER)
    assert talk.api.create("Once more", tools=[INTERPRETER]).output_text == ANSWER


@pytest.mark.covers("VM-010")
@pytest.mark.vllm_known_defect("vllm-38190")
def test_tool_server_down_streamed(talk: Talk, tools: Tools) -> None:
    talk.script_if_reached(runs(CODE), ANSWER)
    tools.python.stop()
    try:
        assert failed_cleanly(talk.api.stream("Go", tools=[INTERPRETER]))
    finally:
        tools.python.start()


@pytest.mark.covers("VM-010", "LS-021")
def test_key_of_the_request_is_passed_on(talk: Talk, tools: Tools) -> None:
    """The headers of an MCP tool in the request, with its key, are passed on to the tool server."""
    talk.script_turns(calls("container.exec", '{"cmd": ["echo", "hello"]}'), "It said hello.")
    assert talk.api.create("Say hello", tools=[container()]).output_text == "It said hello."
    sessions = tools.container.journal("session")
    assert [session["authorization"] for session in sessions] == [f"Bearer {KEY}"]


@pytest.mark.covers("VM-010", "LS-021")
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}], ids=["none", "wrong"])
def test_request_without_the_key_is_refused(headers: dict[str, str], talk: Talk, tools: Tools) -> None:
    talk.script_if_reached(calls("container.exec", '{"cmd": ["echo", "hello"]}'), "It said hello.")
    with pytest.raises(openai.APIStatusError):
        talk.api.create("Go", tools=[mcp("container", headers=headers)])
    assert [session["allowed"] for session in tools.container.journal("session")] == [False]
    assert not tools.container.journal("exec")
    talk.still_serves()


@pytest.mark.covers("VM-010", "LS-021")
def test_refusal_of_the_tool_server_is_told(talk: Talk) -> None:
    """OpenAI's answer is HTTP 424, `Error retrieving tool list from MCP server: ... 401 (Unauthorized)`."""
    talk.script_if_reached(calls("container.exec", '{"cmd": ["echo", "hello"]}'), "It said hello.")
    with pytest.raises(openai.APIStatusError) as caught:
        talk.api.create("Go", tools=[mcp("container")])
    assert "401" in caught.value.message


@pytest.mark.covers("VR-068", "LS-021")
@pytest.mark.vllm_known_defect("mcp-tools-with-other-labels-are-ignored")
def test_mcp_server_of_the_request(talk: Talk, tools: Tools) -> None:
    """vLLM uses the tool server that the request names, or refuses the request."""
    talk.script(ANSWER)
    tool = {"type": "mcp", "server_label": "mine", "server_url": f"http://{tools.python.address}/sse"}
    answer = talk.api.post({"model": talk.server.model, "input": "Go", "tools": [tool]})
    assert answer.status_code == 400 or "mcp_list_tools" in answer.text


@pytest.mark.covers("VM-001")
@pytest.mark.vllm_known_defect("built-in-tools-without-tool-server-are-ignored")
def test_built_in_tool_without_a_tool_server(
    vllm_server: VllmServer, responses: Responses, script: ScriptWriter
) -> None:
    script(ANSWER)
    answer = responses.post({"model": vllm_server.model, "input": "Go", "tools": [INTERPRETER]})
    assert answer.status_code == 400
