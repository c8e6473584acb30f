"""Responses: structured output, with a schema or with vLLM's other grammars."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

import jsonschema
import pytest
from openai import OpenAI
from pydantic import BaseModel

from tests.case_files import cases
from tests.responses_api import Responses
from vllm_harness._exchange.server import VllmServer
from vllm_harness._scripted.book import Raw
from vllm_harness._testing.content import expect_content
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_needs("responses"), pytest.mark.vllm_needs("structured_output")]

ASK = "Plan something. Answer in JSON."
ECHO = pytest.mark.vllm_known_defect("harmony-does-not-echo-text-format")


class Trip(BaseModel):
    """The type of an answer, for the SDK's `parse`."""

    city: Literal["Paris", "Rome"]
    days: Literal[1, 2, 3]


def schema_format(schema: dict[str, Any], name: str = "answer") -> dict[str, Any]:
    """Returns a `text` field that requires a schema."""
    return {"format": {"type": "json_schema", "name": name, "schema": schema, "strict": True}}


@pytest.fixture
def script_json(vllm_server: VllmServer, script: ScriptWriter) -> Any:
    """Scripts JSON under a grammar, which requires Harmony's final message to be marked as JSON."""

    def write(value: Any, **options: Any) -> None:
        text = value if isinstance(value, str) else json.dumps(value)
        if vllm_server.entry.harmony:
            script(Raw(f"<|channel|>final <|constrain|>json<|message|>{text}<|return|>"), **options)
        else:
            script(text, constrained=True, **options)

    return write


@pytest.mark.parametrize("case", cases("responses_structured"))
def test_answer_fits_its_schema(
    case: dict[str, Any], responses: Responses, script: ScriptWriter, script_json: Any
) -> None:
    """Body and stream fit the schema; on the scripted lane they equal the scripted answer."""
    script_json(case["answer"], times=2)
    body, stream = responses.both(ASK, text=schema_format(case["schema"]), max_output_tokens=256)
    for response in (body, stream.terminal):
        expect_content(response.status == "completed", "the whole answer within its budget")
        answer = json.loads(response.output_text)
        jsonschema.validate(answer, case["schema"])
        if script.exact:
            assert answer == case["answer"]


@pytest.mark.covers("VR-024", "VR-032")
def test_parsed_into_a_type(responses: Responses, openai_client: OpenAI, script_json: Any) -> None:
    script_json({"city": "Rome", "days": 2})
    parsed = openai_client.responses.parse(
        model=responses.model, input=ASK, text_format=Trip, temperature=0, max_output_tokens=128
    )
    expect_content(parsed.status == "completed", "the whole answer within its budget")
    assert isinstance(parsed.output_parsed, Trip)


@pytest.mark.covers("VR-024")
def test_stream_helper_parses(responses: Responses, openai_client: OpenAI, script_json: Any) -> None:
    script_json({"city": "Rome", "days": 2})
    with openai_client.responses.stream(
        model=responses.model, input=ASK, text_format=Trip, temperature=0, max_output_tokens=128
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    expect_content(final.status == "completed", "the whole answer within its budget")
    assert kinds[-1] == "response.completed"
    assert isinstance(final.output_parsed, Trip)


@pytest.mark.covers("LS-031", "VR-023")
@ECHO
def test_format_is_echoed(responses: Responses, script_json: Any) -> None:
    script_json({"sunny": True}, times=2)
    schema = {
        "type": "object",
        "properties": {"sunny": {"type": "boolean"}},
        "required": ["sunny"],
        "additionalProperties": False,
    }
    text = schema_format(schema, "weather")
    body, stream = responses.both(ASK, text=text, max_output_tokens=64)
    for response in (body, stream.terminal):
        echoed: Any = response.to_dict().get("text")
        assert echoed is not None
        assert {key: echoed["format"].get(key) for key in text["format"]} == text["format"]


@pytest.mark.covers("VR-059", "LS-031")
def test_json_object(responses: Responses, script: ScriptWriter, vllm_server: VllmServer) -> None:
    """The answer starts like a JSON object, and is complete unless the budget truncates it."""
    answer = '{"river": "Nile"}'
    if vllm_server.entry.harmony:
        script(Raw(f"<|channel|>final <|constrain|>json<|message|>{answer}<|return|>"))
    else:
        script(answer, constrained=True)
    question = 'Name a river, as a JSON object with the key "river".'
    body = responses.create(question, text={"format": {"type": "json_object"}}, max_output_tokens=96)
    expect_content(
        body.output_text.lstrip().startswith("{"), f"the start of an object, not {body.output_text!r}"
    )
    if body.status == "completed":
        assert isinstance(json.loads(body.output_text), dict)
    if script.exact:
        assert body.output_text.strip() == answer


GRAMMAR = 'root ::= "river: " name\nname ::= "Nile" | "Seine"'
OTHERS = {
    "choice": ({"choice": ["Nile", "Seine"]}, "Seine", r"Nile|Seine"),
    "regex": ({"regex": r"[A-Z][a-z]{2,6} \d{2}"}, "Seine 42", r"[A-Z][a-z]{2,6} \d{2}"),
    "grammar": ({"grammar": GRAMMAR}, "river: Nile", r"river: (Nile|Seine)"),
}


@pytest.mark.covers("LS-006", "VR-059")
@pytest.mark.parametrize("kind", OTHERS)
def test_other_grammars(kind: str, responses: Responses, script: ScriptWriter) -> None:
    """The answer fits the grammar in vLLM's own field `structured_outputs`."""
    constraint, answer, pattern = OTHERS[kind]
    script(answer, constrained=True, times=2)
    body, stream = responses.both(
        "Name a river.", extra_body={"structured_outputs": constraint}, max_output_tokens=64
    )
    for response in (body, stream.terminal):
        assert re.fullmatch(pattern, response.output_text.strip())
        if script.exact:
            assert response.output_text.strip() == answer


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("reasoning")
@pytest.mark.covers("VR-023", "LS-031")
def test_thoughts_are_free_and_the_answer_is_held(
    vllm_server: VllmServer, responses: Responses, script: ScriptWriter
) -> None:
    thoughts, answer = "Anything, even {not JSON.", '{"sunny": true}'
    if vllm_server.entry.harmony:
        raw = (
            f"<|channel|>analysis<|message|>{thoughts}<|end|><|start|>assistant"
            f"<|channel|>final <|constrain|>json<|message|>{answer}<|return|>"
        )
        script(Raw(raw), times=2)
    else:
        script(answer, reasoning=thoughts, constrained=True, times=2)
    schema = {
        "type": "object",
        "properties": {"sunny": {"type": "boolean"}},
        "required": ["sunny"],
        "additionalProperties": False,
    }
    body, _ = responses.both(ASK, text=schema_format(schema))
    assert [item.type for item in body.output] == ["reasoning", "message"]
    assert body.output_text == answer


@pytest.mark.covers("VR-059")
def test_two_grammars_are_refused(responses: Responses) -> None:
    answer = responses.post(
        {
            "model": responses.model,
            "input": ASK,
            "text": schema_format({"type": "object"}),
            "structured_outputs": {"choice": ["a", "b"]},
        }
    )
    assert answer.status_code == 400
    assert "Cannot specify both structured_outputs and text.format" in answer.json()["error"]["message"]


@pytest.mark.vllm_standard
@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VR-024", "VR-062")
@pytest.mark.parametrize("stream", [False, True])
def test_format_holds_where_a_message_goes_on(
    stream: bool, responses: Responses, script: ScriptWriter
) -> None:
    """If the answer continues a message, the reasoning has ended: the format applies from the first token."""
    text = {"type": "output_text", "text": "The trip:", "annotations": []}
    unfinished = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "in_progress",
        "content": [text],
    }
    request = {
        "input": [{"role": "user", "content": "A trip?"}, unfinished],
        "text": schema_format({"enum": [7]}),
    }
    script(Raw("Rome, three days."), expect="refused")
    answer = responses.post({"model": responses.model, "stream": stream, **request})
    assert "was refused at token 0 of" in answer.text
