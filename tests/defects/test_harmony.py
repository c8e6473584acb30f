"""Behaviour specific to gpt-oss: prompts over several turns, and how vLLM handles malformed Harmony."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.defects.wire import (
    CHAT_TOOL,
    SHOW_PROMPT,
    TOOL,
    Json,
    Wire,
    accepted,
    items,
    message_of,
    prompt_of,
    reasoning_of,
    terminal,
    text_of,
    user,
)
from tests.hanging import LATER
from vllm_harness._scripted.book import Raw
from vllm_harness._scripted.meaning import Meaning, Reasoning, Text, ToolCall
from vllm_harness._testing.checks import StreamCheck
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_scripted, pytest.mark.vllm_harmony, pytest.mark.vllm_needs("responses")]

CALL = ToolCall("get_weather", {"city": "Paris"})
FINAL = "<|channel|>final<|message|>"
START = "<|start|>assistant"
TO_WEATHER = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
PREAMBLE_KEPT = pytest.mark.vllm_known_defect("harmony-follow-up-keeps-the-first-preamble")


def follow_up(wire: Wire, script: ScriptWriter, first: Json, second: Json) -> str:
    """Returns the prompt of a second turn that continues the first by `previous_response_id`."""
    script("One.")
    script("Two.")
    before = wire.respond("First?", **first)
    return prompt_of(wire.respond("Second?", previous_response_id=before["id"], **second, **SHOW_PROMPT))


@pytest.mark.covers("CO-01")
@PREAMBLE_KEPT
@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ({"instructions": "Rhyme always."}, "Rhyme always."),
        ({"tools": [TOOL]}, "get_weather"),
        ({"reasoning": {"effort": "high"}}, "high"),
    ],
    ids=["instructions", "tools", "effort"],
)
def test_follow_up_turn_takes_its_own_settings(
    setting: Json, shown: str, wire: Wire, script: ScriptWriter
) -> None:
    """Source: API reference, previous_response_id: only items carry over, the new request sets the rest."""
    assert shown.lower() in follow_up(wire, script, {}, setting).lower()


@pytest.mark.covers("CO-01", "vllm-37697")
@PREAMBLE_KEPT
def test_follow_up_turn_drops_old_instructions(wire: Wire, script: ScriptWriter) -> None:
    """Source: API reference, `instructions`: instructions of a previous response are not carried over."""
    assert "Rhyme always." not in follow_up(wire, script, {"instructions": "Rhyme always."}, {})


@pytest.mark.covers("CO-05", "vllm-40418")
@pytest.mark.vllm_known_defect("background-job-raises")
def test_background_job_that_fails_says_so(wire: Wire, script: ScriptWriter) -> None:
    """The model calls a browser tool that does not exist, and vLLM raises: the response must fail."""
    script(Raw("<|channel|>commentary to=browser.dance<|message|>{}<|call|>"))
    script("Later.", times=LATER)
    response = wire.respond("Dance", background=True)
    for _ in range(LATER):
        wire.respond("Later?")
    response = accepted(wire.http.get(f"/v1/responses/{response['id']}"))
    assert response["status"] in {"completed", "incomplete", "failed"}


@pytest.mark.covers("CO-09")
def test_no_parallel_calls_where_they_are_not_wanted(wire: Wire, script: ScriptWriter) -> None:
    """Source: API reference: parallel_tool_calls false allows at most one call; a grammar enforces it."""
    arguments = json.dumps({"city": "Paris"})
    script(Raw(f"{TO_WEATHER}{arguments}<|end|>{START}{TO_WEATHER}{arguments}<|call|>"), expect="refused")
    answer = wire.post("responses", input="Weather?", tools=[TOOL], parallel_tool_calls=False)
    assert answer.json()["error"]["code"] == "script_refused"


@pytest.mark.covers("CO-09")
@pytest.mark.vllm_known_defect("include-reasoning-on-harmony-responses")
def test_reasoning_is_left_out_where_asked(wire: Wire, script: ScriptWriter) -> None:
    """With vLLM's own parameter `include_reasoning: false`, reasoning is generated but not returned."""
    script("Hello.", reasoning="A greeting.")
    assert not items(wire.respond("Hi", include_reasoning=False), "reasoning")


@pytest.mark.covers("CO-11", "vllm-41902")
@pytest.mark.vllm_known_defect("chat-drops-other-harmony-recipients")
@pytest.mark.parametrize("recipient", ["python", "browser.search", "container.exec"])
@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
def test_chat_shows_what_goes_to_another_recipient(
    stream: bool, recipient: str, wire: Wire, script: ScriptWriter
) -> None:
    """The API does not define how to return a call to another recipient, but it must not disappear."""
    script(Raw(f"<|channel|>commentary to={recipient}<|message|>print(1)<|call|>"))
    if stream:
        deltas = [chunk["choices"][0]["delta"] for chunk in wire.chat_stream("Go") if chunk["choices"]]
        has_output = any(
            delta.get("content") or delta.get("reasoning") or delta.get("tool_calls") for delta in deltas
        )
    else:
        message = message_of(wire.chat("Go"))
        has_output = bool(message["content"] or message.get("reasoning") or message.get("tool_calls"))
    assert has_output, "completion tokens, and neither content nor reasoning nor a call"


ODD = {
    "words after the end": (f"{FINAL}Hello<|end|> more words<|return|>", "more words"),
    "a message without start": (f"{FINAL}Hello<|end|><|channel|>final<|message|>World<|return|>", "World"),
    "a start without its token": (
        f"{FINAL}Hello<|end|>assistant<|channel|>final<|message|>World<|return|>",
        "World",
    ),
}
LOST = pytest.mark.vllm_known_defect("vllm-46464")


@pytest.mark.covers("CO-12", "vllm-46464")
@LOST
@pytest.mark.parametrize("case", ODD)
def test_chat_keeps_words_that_harmony_does_not_expect(case: str, wire: Wire, script: ScriptWriter) -> None:
    """The API does not define how to return such words, but they must not vanish from a `stop` answer."""
    raw, words = ODD[case]
    script(Raw(raw))
    assert words in (message_of(wire.chat("Go"))["content"] or "")


@pytest.mark.covers("CO-12", "vllm-46464")
@LOST
@pytest.mark.parametrize("case", ODD)
def test_responses_keep_words_that_harmony_does_not_expect(
    case: str, wire: Wire, script: ScriptWriter
) -> None:
    """Words that Harmony does not allow at their position must not vanish from a response."""
    raw, words = ODD[case]
    script(Raw(raw))
    assert words in text_of(wire.respond("Go"))


MALFORMED = {
    "two ends": f"{FINAL}Hello<|end|><|end|><|return|>",
    "channel token in text": f"{FINAL}Hello<|channel|> world<|return|>",
    "message token in text": f"{FINAL}Hello<|message|> world<|return|>",
    "two starts": f"<|start|>{START}{FINAL}Hello<|return|>",
    "no channel": "<|message|>Hello<|return|>",
    "unknown channel": "<|channel|>thoughts<|message|>Hello<|return|>",
}
UNKNOWN_CHANNEL = pytest.mark.vllm_known_defect("unplaceable-harmony-is-blamed-on-the-client")


def malformed() -> Iterator[Any]:
    """Yields a test case for each malformed output with each API, streamed and not."""
    for name, raw in MALFORMED.items():
        for api, mode in itertools.product(("chat", "responses"), ("body", "stream")):
            known = api == "responses" and name.endswith("channel")
            yield pytest.param(
                raw, mode == "stream", api, id=f"{name}-{api}-{mode}", marks=UNKNOWN_CHANNEL if known else ()
            )


@pytest.mark.covers("CO-12", "vllm-46464", "vllm-47350")
@pytest.mark.parametrize(("raw", "stream", "api"), list(malformed()))
def test_odd_harmony_ends_in_an_answer(
    raw: str, stream: bool, api: str, wire: Wire, script: ScriptWriter
) -> None:
    """The answer to malformed Harmony still ends, and is never an error that blames the client."""
    script(Raw(raw))
    if api == "responses":
        answer = terminal(wire.stream("Go")) if stream else wire.respond("Go")
        assert answer["status"] in {"completed", "incomplete", "failed"}
    elif stream:
        reasons = [c["choices"][0]["finish_reason"] for c in wire.chat_stream("Go") if c["choices"]]
        assert reasons[-1] == "stop"
    else:
        assert wire.chat("Go")["choices"][0]["finish_reason"] == "stop"


@pytest.mark.covers("CO-14")
@pytest.mark.vllm_known_defect("arguments-are-written-anew")
@pytest.mark.parametrize(
    "arguments", ['{"city":"Zürich"}', '{"city": "a",  "days": 1e2}'], ids=["ü", "blanks"]
)
def test_chat_arguments_are_the_same_streamed_and_not(
    arguments: str, wire: Wire, script: ScriptWriter
) -> None:
    """Source: API reference: `arguments` are returned as the model generated them."""
    script(calls=[ToolCall("get_weather", arguments)], times=2)
    (call,) = message_of(wire.chat("Weather?", tools=[CHAT_TOOL]))["tool_calls"]
    chunks = wire.chat_stream("Weather?", tools=[CHAT_TOOL])
    deltas = [d for c in chunks if c["choices"] for d in c["choices"][0]["delta"].get("tool_calls") or []]
    assert "".join(delta["function"].get("arguments") or "" for delta in deltas) == arguments
    assert call["function"]["arguments"] == arguments


@pytest.mark.covers("CO-15")
@pytest.mark.vllm_known_defect("harmony-item-done-carries-event-fields")
def test_streamed_call_has_only_the_fields_of_a_call(wire: Wire, script: ScriptWriter) -> None:
    """Source: OpenAI's OpenAPI schema, FunctionToolCall."""
    script(calls=[CALL])
    (item,) = (
        event["item"]
        for event in wire.stream("Weather?", tools=[TOOL])
        if event["type"] == "response.output_item.done"
    )
    assert not {"output_index", "sequence_number"} & set(item)


BUILT_IN: dict[str, Json] = {
    "mcp_call": {
        "type": "mcp_call",
        "id": "mcp_1",
        "name": "list",
        "server_label": "repo",
        "arguments": "{}",
        "output": "README.md",
    },
    "web_search_call": {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "vllm"},
    },
    "code_interpreter_call": {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "status": "completed",
        "container_id": "auto",
        "code": "print(1)",
        "outputs": None,
    },
    "custom_tool_call": {"type": "custom_tool_call", "call_id": "call_1", "name": "patch", "input": "+1"},
}


@pytest.mark.covers("CO-17")
@pytest.mark.vllm_known_defect("harmony-takes-few-kinds-of-input")
@pytest.mark.parametrize("kind", BUILT_IN)
def test_output_items_of_tools_may_come_back(kind: str, wire: Wire, script: ScriptWriter) -> None:
    """Source: API reference, `input`: all output items may be sent back."""
    script("Fine.")
    wire.respond([user("Look"), BUILT_IN[kind], user("And?")])


@pytest.mark.covers("CO-17")
@pytest.mark.vllm_known_defect("harmony-takes-few-kinds-of-input")
def test_item_reference_is_looked_up(wire: Wire, script: ScriptWriter) -> None:
    """Source: API reference: an `item_reference` refers to an item of a stored response by its id."""
    script("Rome.")
    script("Sure.")
    first = wire.respond("Capital?", store=True)
    reference = {"type": "item_reference", "id": first["output"][-1]["id"]}
    response = wire.respond([user("Capital?"), reference, user("Sure?")], **SHOW_PROMPT)
    assert "Rome." in prompt_of(response)


@pytest.mark.covers("vllm-32587")
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_names_of_functions_hold_no_special_tokens(api: str, wire: Wire, script: ScriptWriter) -> None:
    """This no longer happens: if gpt-oss wrote the channel twice, it became part of the function's name."""
    twice = "<|channel|>commentary to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>"
    script(Raw(f'{twice}{{"city": "Paris"}}<|call|>'))
    if api == "responses":
        (name,) = (call["name"] for call in items(wire.respond("Go", tools=[TOOL]), "function_call"))
    else:
        (name,) = (
            c["function"]["name"] for c in message_of(wire.chat("Go", tools=[CHAT_TOOL]))["tool_calls"]
        )
    assert name == "get_weather"


@pytest.mark.covers("vllm-32587")
@pytest.mark.parametrize(
    "header",
    [
        " to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.get_weather<|constrain|>json<|message|>",
        "<|channel|>analysis to=functions.get_weather <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.get_weather json<|message|>",
    ],
    ids=["recipient first", "constrain without blank", "in analysis", "no constrain"],
)
def test_every_way_to_write_a_call(header: str, wire: Wire, script: ScriptWriter) -> None:
    """Source: Harmony format, "Receiving tool calls", and other forms that gpt-oss has written."""
    script(Raw(f'{header}{{"city": "Paris"}}<|call|>'), times=2)
    (call,) = items(wire.respond("Go", tools=[TOOL]), "function_call")
    (chat,) = message_of(wire.chat("Go", tools=[CHAT_TOOL]))["tool_calls"]
    assert (call["name"], chat["function"]["name"]) == ("get_weather", "get_weather")
    assert call["arguments"] == '{"city": "Paris"}'


@pytest.mark.covers("vllm-45742")
def test_content_index_begins_anew_with_each_item(
    wire: Wire, script: ScriptWriter, check_stream: StreamCheck
) -> None:
    """This no longer happens: the index grew across items, and the SDK raised an IndexError."""
    script(Meaning((Reasoning("Weather, then."), Text("I shall look."), CALL)))
    events = wire.stream("Weather?", tools=[TOOL])
    check_stream(events)
    assert {event["content_index"] for event in events if "content_index" in event} == {0}


@pytest.mark.covers("vllm-28262")
def test_replayed_reasoning_and_calls_keep_their_channels(wire: Wire, script: ScriptWriter) -> None:
    """This no longer happens with these items: replayed, they became plain assistant text in the prompt."""
    script(reasoning="Weather, then.", calls=[CALL])
    first = wire.respond("Weather?", tools=[TOOL])
    (call,) = items(first, "function_call")
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    script("Sunny.")
    second = wire.respond([user("Weather?"), *first["output"], output], tools=[TOOL], **SHOW_PROMPT)
    places = {
        (message.get("channel"), message.get("recipient"))
        for message in second["input_messages"]
        if message["role"] == "assistant"
    }
    assert places == {("analysis", None), ("commentary", "functions.get_weather")}


@pytest.mark.covers("vllm-28262")
@pytest.mark.vllm_known_defect("vllm-50975")
def test_replayed_preamble_stays_a_preamble(wire: Wire, script: ScriptWriter) -> None:
    """Source: Harmony format, "Preambles": they are commentary; OpenAI's items mark them with `phase`."""
    script(Meaning((Text("I shall look."), CALL)))
    first = wire.respond("Weather?", tools=[TOOL])
    output = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "sunny"}
    script("Sunny.")
    second = wire.respond([user("Weather?"), *first["output"], output], tools=[TOOL], **SHOW_PROMPT)
    channels = [
        message.get("channel")
        for message in second["input_messages"]
        if "I shall look." in json.dumps(message)
    ]
    assert channels == ["commentary"]


@pytest.mark.covers("vllm-45048")
def test_reasoning_of_finished_turns_leaves_the_prompt(wire: Wire, script: ScriptWriter) -> None:
    """Source: Harmony format, "Handling reasoning output in subsequent sampling turns"."""

    def tokens_of_third_turn(thought: str) -> int:
        script(reasoning=thought, calls=[CALL])
        script("It is sunny.", reasoning=thought)
        script("Glad to.")
        first = wire.respond("Weather?", tools=[TOOL])
        call_id = items(first, "function_call")[0]["call_id"]
        output = {"type": "function_call_output", "call_id": call_id, "output": "sunny"}
        second = wire.respond([output], tools=[TOOL], previous_response_id=first["id"])
        third = wire.respond("Thanks", tools=[TOOL], previous_response_id=second["id"])
        tokens: int = third["usage"]["input_tokens"]
        return tokens

    assert tokens_of_third_turn("Hm.") == tokens_of_third_turn("One thing after the other. " * 20)


@pytest.mark.covers("vllm-49493")
@pytest.mark.vllm_known_defect("vllm-49493")
def test_namespaces_of_tools_are_taken(wire: Wire, script: ScriptWriter) -> None:
    """Source: OpenAI's OpenAPI schema, NamespaceTool; Codex sends such tools."""
    script("Hello.")
    namespace = {"type": "namespace", "name": "sky", "description": "Weather", "tools": [TOOL]}
    wire.respond("Hi", tools=[namespace])


@pytest.mark.covers("vllm-34417")
def test_logprobs_come_or_are_refused(wire: Wire) -> None:
    """OpenAI returns logprobs; for gpt-oss, vLLM may refuse them with a 400, but must not ignore them."""
    answer = wire.post("responses", input="Hi", include=["message.output_text.logprobs"], top_logprobs=2)
    assert answer.status_code == 400
    assert "logprobs" in answer.json()["error"]["message"]


@pytest.mark.covers("vllm-40418")
@pytest.mark.vllm_known_defect("code-interpreter-call-becomes-reasoning")
def test_python_call_is_the_same_streamed_and_not(wire: Wire, script: ScriptWriter) -> None:
    """Body and stream have the same items for a call to python if there is no tool server."""
    script(Raw("<|channel|>analysis to=python<|message|>print(1)<|call|>"), times=2)
    body = wire.respond("Go")
    events = wire.stream("Go")
    streamed = [e["item"]["type"] for e in events if e["type"] == "response.output_item.done"]
    assert [item["type"] for item in body["output"]] == streamed
    assert [item["type"] for item in terminal(events)["output"]] == streamed


@pytest.mark.covers("vllm-22403")
def test_thoughts_only(wire: Wire, script: ScriptWriter) -> None:
    """The response to a turn that consists only of reasoning has a reasoning item and no message."""
    script(Raw("<|channel|>analysis<|message|>Hm.<|return|>"))
    response = wire.respond("Go")
    assert reasoning_of(response) == "Hm."
    assert not items(response, "message")


BROWSER: dict[str, Any] = {
    "search": '{"query": "vllm"}',
    "search without query": "{}",
    "no JSON": "vllm",
}


@pytest.mark.covers("CO-12")
@pytest.mark.parametrize("case", ["search without query", "no JSON"])
def test_odd_browser_call_ends_in_an_answer(case: str, wire: Wire, script: ScriptWriter) -> None:
    """Invalid arguments for the built-in search break neither body nor stream."""
    script(Raw(f"<|channel|>commentary to=browser.search<|message|>{BROWSER[case]}<|call|>"), times=2)
    wire.respond("Go")
    assert terminal(wire.stream("Go"))
