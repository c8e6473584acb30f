"""Structured outputs over Chat Completions: schema, JSON object, regex, choice, grammar, structural tag."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

import jsonschema
import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from tests.case_files import cases
from tests.chat_api import FREE, PARIS, Chat, named
from tests.error_objects import check_param
from vllm_harness._scripted.book import Raw
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = pytest.mark.vllm_needs("structured_output")

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Paris", "Rome"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "dry": {"type": "boolean"},
    },
    "required": ["city", "days", "dry"],
    "additionalProperties": False,
}
BY_SCHEMA = {"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA, "strict": True}}
TRIP = '{"city": "Rome", "days": 3, "dry": true}'


def holds(script: ScriptWriter, chat: Chat, text: str, *, as_json: bool = True, times: int = 2) -> None:
    """Scripts an answer under a grammar, in the form that vLLM's grammar for the family requires."""
    if chat.server.entry.harmony:
        constrain = " <|constrain|>json" if as_json else ""
        script(Raw(f"<|channel|>final{constrain}<|message|>{text}<|return|>"), times=times)
    else:
        script(text, constrained=not chat.rust, times=times)


@pytest.mark.covers("VC-008", "VC-007")
def test_schema(chat: Chat, script: ScriptWriter) -> None:
    holds(script, chat, TRIP)
    answers = chat.both(response_format=BY_SCHEMA, max_tokens=100)
    jsonschema.validate(json.loads(answers.output.content), SCHEMA)
    assert answers.output.finish == "stop"
    if script.exact:
        assert answers.output.content == TRIP


@pytest.mark.covers("VC-008")
def test_schema_by_the_sdk(chat: Chat, openai_client: OpenAI, script: ScriptWriter) -> None:
    """The SDK's `parse` derives the schema from a class, and returns the answer as an object of the class."""

    class Trip(BaseModel):
        city: Literal["Paris", "Rome"]
        dry: bool

    holds(script, chat, '{"city": "Rome", "dry": false}', times=1)
    parsed = openai_client.chat.completions.parse(
        model=chat.server.model,
        messages=[{"role": "user", "content": "A trip to Rome or to Paris?"}],
        response_format=Trip,
        temperature=0,
    )
    chat.check("check_body")(parsed)
    trip = parsed.choices[0].message.parsed
    assert isinstance(trip, Trip)
    if script.exact:
        assert trip == Trip(city="Rome", dry=False)


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-008")
def test_schema_with_references(chat: Chat, script: ScriptWriter) -> None:
    schema = {
        "type": "object",
        "properties": {"from": {"$ref": "#/$defs/place"}, "to": {"$ref": "#/$defs/place"}},
        "required": ["from", "to"],
        "additionalProperties": False,
        "$defs": {"place": {"enum": ["Rome", "Zürich"]}},
    }
    text = '{"from": "Rome", "to": "Zürich"}'
    holds(script, chat, text)
    response_format = {"type": "json_schema", "json_schema": {"name": "way", "schema": schema}}
    assert chat.both(response_format=response_format).output.content == text


@pytest.mark.covers("VC-008")
def test_json_object(chat: Chat, script: ScriptWriter) -> None:
    """The answer starts like a JSON object, and is a complete one if generation stops by itself."""
    holds(script, chat, '{"result": 2}')
    answers = chat.both(response_format={"type": "json_object"}, max_tokens=60)
    assert answers.output.content.lstrip().startswith("{")
    if answers.output.finish == "stop":
        assert isinstance(json.loads(answers.output.content), dict)
    if script.exact:
        assert answers.output.content == '{"result": 2}'


@pytest.mark.covers("VC-008")
def test_format_text_constrains_nothing(chat: Chat, script: ScriptWriter) -> None:
    script("Just words.", times=2)
    answers = chat.both(response_format={"type": "text"}, max_tokens=20)
    if script.exact:
        assert answers.output.content.strip() == "Just words."


@pytest.mark.covers("VC-007", "VC-011")
def test_regex(chat: Chat, script: ScriptWriter) -> None:
    pattern = r"(25[0-5]|2[0-4]\d|1?\d?\d)(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3}"
    holds(script, chat, "192.168.17.1", as_json=False)
    answers = chat.both(structured_outputs={"regex": pattern}, max_tokens=40)
    assert re.fullmatch(pattern, answers.output.content)
    assert answers.output.finish == "stop"
    if script.exact:
        assert answers.output.content == "192.168.17.1"


@pytest.mark.covers("VC-007")
def test_choice(chat: Chat, script: ScriptWriter) -> None:
    """The answer is one of the choices, and none of its tokens has the log-probability minus infinity."""
    holds(script, chat, "C++", as_json=False)
    choices = ["Python", "C", "C++", "日本語"]
    answers = chat.both(structured_outputs={"choice": choices}, logprobs=True, top_logprobs=2, max_tokens=20)
    assert answers.output.content in choices
    assert answers.output.finish == "stop"
    logprobs = answers.body.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content
    assert all(
        -9999 <= each.logprob <= 0 for entry in logprobs.content for each in [entry, *entry.top_logprobs]
    )
    if script.exact:
        assert answers.output.content == "C++"


@pytest.mark.covers("VC-007", "VC-011")
def test_grammar(chat: Chat, script: ScriptWriter) -> None:
    grammar = 'root ::= "SELECT " column " FROM " table\ncolumn ::= "a" | "b"\ntable ::= "t1" | "t2"\n'
    holds(script, chat, "SELECT b FROM t2", as_json=False)
    answers = chat.both(structured_outputs={"grammar": grammar}, max_tokens=30)
    assert re.fullmatch("SELECT [ab] FROM t[12]", answers.output.content)
    assert answers.output.finish == "stop"
    if script.exact:
        assert answers.output.content == "SELECT b FROM t2"


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3", "llama3.1")
@pytest.mark.covers("VC-007", "VC-027")
def test_structural_tag(chat: Chat, script: ScriptWriter) -> None:
    """Text outside the tag is unconstrained; text inside it must fit the schema."""
    tag = {
        "type": "structural_tag",
        "structures": [{"begin": "<trip>", "schema": SCHEMA, "end": "</trip>"}],
        "triggers": ["<trip>"],
    }
    script(f"See <trip>{TRIP}</trip> there", times=2)
    assert chat.both(response_format=tag).output.content.strip() == f"See <trip>{TRIP}</trip> there"
    script("See <trip>none</trip>", expect="refused")
    with pytest.raises(openai.APIStatusError, match="was refused at token"):
        chat.body(response_format=tag)


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("reasoning")
@pytest.mark.covers("VC-008", "VC-014", "VT-016")
def test_reasoning_is_free_before_a_constrained_answer(chat: Chat, script: ScriptWriter) -> None:
    """The grammar applies to the answer, not to the reasoning before it."""
    thought = "Rome, for {three} days?"
    if chat.server.entry.harmony:
        head = f"<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant"
        final = f"<|channel|>final <|constrain|>json<|message|>{TRIP}<|return|>"
        script(Raw(head + final), times=2)
    else:
        script(TRIP, reasoning=thought, constrained=not chat.rust, times=2)
    answers = chat.both(response_format=BY_SCHEMA)
    assert answers.output.reasoning.strip() == thought
    assert answers.output.content == TRIP


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("tools")
@pytest.mark.vllm_model("qwen3", "gpt-oss")
@pytest.mark.covers("VT-004", "VC-008")
@pytest.mark.parametrize("outcome", ["call", "answer"])
def test_call_or_constrained_answer(outcome: str, chat: Chat, script: ScriptWriter) -> None:
    """With tool_choice auto and a schema, the model may call a tool or answer by the schema (vllm#39929)."""
    tools = [{**FREE, "function": {**FREE["function"], "strict": True}}]
    if outcome == "call":
        script(calls=[PARIS], constrained=not chat.rust, times=2)
    else:
        holds(script, chat, TRIP)
    answers = chat.both(tools=tools, response_format=BY_SCHEMA)
    output = (answers.output.content, answers.output.calls, answers.output.finish)
    if outcome == "call":
        assert output == ("", (("get_weather", PARIS.arguments_json),), "tool_calls")
    else:
        assert output == (TRIP, (), "stop")


@pytest.mark.covers("VC-007", "VC-011", "VC-027", "VT-009", "VT-010")
@pytest.mark.parametrize("case", cases("chat_wrong_constraints"))
def test_wrong_constraint_is_refused(case: dict[str, Any], chat: Chat) -> None:
    """A wrong constraint leads to a 400 before anything is generated; the next request is served."""
    refuses(chat, case, stream=False)


@pytest.mark.covers("VC-007", "VC-011", "VC-027", "VT-009", "VT-010")
@pytest.mark.parametrize("case", cases("chat_wrong_constraints", known="known_in_streams"))
def test_wrong_constraint_of_a_stream_is_refused(case: dict[str, Any], chat: Chat) -> None:
    """The server refuses a streamed request with a wrong constraint in the same way."""
    refuses(chat, case, stream=True)


def refuses(chat: Chat, case: dict[str, Any], *, stream: bool) -> None:
    """Asserts that the server refuses the constraint with a clear message, not the text of a KeyError."""
    request = dict(case["request"])
    if request.pop("named", False):
        request |= {"tools": [FREE], "tool_choice": named("get_weather")}
    error = chat.refused({**request, "stream": stream}, case["pattern"])
    assert not error["message"].endswith(": 'triggers'")
    check_param(error, case.get("param"))


@pytest.mark.covers("VC-007", "VC-008")
@pytest.mark.parametrize("name", ["guided_json", "guided_regex", "guided_choice"])
@pytest.mark.vllm_known_defect("vllm-53975")
def test_removed_fields_are_not_ignored(name: str, chat: Chat) -> None:
    """A constraint in a field that old clients use must be applied or refused, not ignored."""
    value: Any = {"guided_json": SCHEMA, "guided_regex": "[0-9]{3}", "guided_choice": ["yes", "no"]}[name]
    body = {"model": chat.server.model, "messages": [{"role": "user", "content": "hi"}], name: value}
    answer = chat.post("/invocations", {**body, "max_tokens": 3, "temperature": 0})
    assert answer.status_code == 400, answer.text
    assert "no script matches" not in answer.text, "the request was taken"


@pytest.mark.vllm_standard
@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VC-007")
@pytest.mark.parametrize("stream", [False, True])
def test_what_follows_the_end_of_a_grammar_is_free(stream: bool, chat: Chat, script: ScriptWriter) -> None:
    """With `ignore_eos` the model continues after an answer that has completed its grammar."""
    script(Raw("yes<|im_end|>and so on, and so on, and so on"), expect="truncated")
    request = {
        "structured_outputs": {"choice": ["yes", "no"]},
        "chat_template_kwargs": {"enable_thinking": False},
        "ignore_eos": True,
        "max_tokens": 8,
    }
    if stream:
        *_, last = [choice for chunk in chat.stream(**request) for choice in chunk.choices]
    else:
        (last,) = chat.body(**request).choices
    assert last.finish_reason == "length"


@pytest.mark.vllm_standard
@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VC-007")
@pytest.mark.parametrize("stream", [False, True])
def test_format_holds_where_the_thoughts_are_behind(stream: bool, chat: Chat, script: ScriptWriter) -> None:
    """Continuing a message implies that its reasoning has ended: the format applies from the first token."""
    unfinished = {"role": "assistant", "reasoning": "Hm.", "content": "The trip:"}
    request = {
        "model": chat.server.model,
        "messages": [{"role": "user", "content": "A trip?"}, unfinished],
        "response_format": BY_SCHEMA,
        "stream": stream,
        **{"add_generation_prompt": False, "continue_final_message": True},
    }
    script(Raw(TRIP))
    script(Raw("Rome, three days."), expect="refused")
    allowed, forbidden = (chat.post("/v1/chat/completions", request).text for _ in range(2))
    assert "was refused at token 0 of" not in allowed
    assert "was refused at token 0 of" in forbidden


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-007")
@pytest.mark.parametrize("choice", ['C:\\new "folder"', "two\nlines", "a/b | c"])
def test_choice_is_taken_as_it_is(choice: str, chat: Chat, script: ScriptWriter) -> None:
    """Characters in a choice that have a special meaning in grammars are taken literally."""
    holds(script, chat, choice, as_json=False)
    assert chat.both(structured_outputs={"choice": [choice, "no"]}, max_tokens=40).output.content == choice


@pytest.mark.vllm_standard
@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-007", "VC-008")
def test_choice_holds_beside_the_format_text(chat: Chat, script: ScriptWriter) -> None:
    """The response format `text` does not override the constraint."""
    script("perhaps", constrained=True, expect="refused")
    with pytest.raises(openai.APIStatusError, match="was refused at token"):
        chat.body(structured_outputs={"choice": ["yes", "no"]}, response_format={"type": "text"})
