"""Client errors: the server answers with a 4xx and the error object, never a 5xx, and keeps serving."""

from __future__ import annotations

import json
import re
from typing import Any

import openai
import pytest

from tests.case_files import cases
from tests.chat_api import ASK, FREE, Chat, named
from tests.error_objects import check_param
from vllm_harness._testing.fixtures import ScriptWriter


@pytest.mark.parametrize("case", cases("chat_errors"))
@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
def test_wrong_request(stream: bool, case: dict[str, Any], chat: Chat) -> None:
    """A wrong request is answered with an error status and a body, even if a stream was requested."""
    error = chat.refused(
        {**case["request"], "stream": stream}, case["pattern"], status=case.get("status", 400)
    )
    assert error["code"] == case.get("status", 400)
    check_param(error, case.get("param"))
    assert "/site-packages/" not in json.dumps(error)


@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VC-018", "VT-009", "VT-010")
@pytest.mark.parametrize("case", cases("chat_wrong_tools"))
def test_wrong_tools(case: dict[str, Any], chat: Chat) -> None:
    error = chat.refused(case["request"], case["pattern"])
    check_param(error, case.get("param"))
    assert not any(text in error["message"] for text in case.get("hidden", ()))


@pytest.mark.covers("VC-029", "VC-037")
@pytest.mark.parametrize(
    ("body", "pattern"),
    [
        (b"{", "JSON"),
        (b"", "body|JSON|required"),
        (b"[]", "object|dict|list"),
        (b'"hi"', "object|dict|str"),
        (b"null", "body|required|object|dict"),
        (b"5", "object|dict|int"),
    ],
    ids=["cut", "empty", "array", "text", "null", "number"],
)
def test_body_that_is_no_object(body: bytes, pattern: str, chat: Chat) -> None:
    chat.refused(body, pattern)


@pytest.mark.vllm_scripted
@pytest.mark.vllm_standard
@pytest.mark.covers("VC-029", "VC-041")
@pytest.mark.parametrize(
    ("role", "part", "words", "param"),
    [
        ("user", {"uuid": "x"}, "Missing 'type'", "type"),
        ("critic", {"input_audio": None}, "not a multimodal model", None),
    ],
    ids=["without a type", "null audio"],
)
def test_wrong_part(role: str, part: dict[str, Any], words: str, param: str | None, chat: Chat) -> None:
    """The error names what is wrong; even a null audio part counts as audio, which a text model refuses."""
    check_param(chat.refused({"messages": [{"role": role, "content": [part]}]}, words), param)


@pytest.mark.covers("VC-029")
@pytest.mark.parametrize("number", ["NaN", "1e999"])
@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "presence_penalty", "repetition_penalty"])
def test_number_that_is_none_or_infinite(name: str, number: str, chat: Chat) -> None:
    request = json.dumps({"model": chat.server.model, "messages": ASK, "max_tokens": 5, name: 0})
    chat.refused(request.replace(f'"{name}": 0', f'"{name}": {number}').encode(), f"{name} must be")


@pytest.mark.covers("VC-029", "VC-035")
@pytest.mark.parametrize("name", ["logit_bias", "stop_token_ids", "allowed_token_ids"])
def test_token_that_there_is_not(name: str, chat: Chat) -> None:
    """For any id beyond the vocabulary, the error names the field and the size of the vocabulary."""
    far = chat.refused({"logit_bias": {"100000000": 1}}, "logit_bias")
    size = re.search(r"ocabulary size: (\d+)", far["message"])
    assert size is not None, far["message"]
    for token in (int(size[1]), -1):
        error = chat.refused({name: {str(token): 1} if name == "logit_bias" else [token]}, name)
        assert error["param"] == name


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-029", "VC-035")
def test_token_that_there_is_not_in_a_stream(chat: Chat) -> None:
    """An error in a stream has the same content as one in a body."""
    request = {"model": chat.server.model, "messages": ASK, "logit_bias": {"100000000": 1}}
    body = chat.post("/v1/chat/completions", request).json()["error"]
    stream = chat.post("/v1/chat/completions", {**request, "stream": True}).text
    first = json.loads(stream.partition("\n")[0].removeprefix("data: "))
    assert first["error"] == body


@pytest.mark.covers("VC-037")
@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON;charset=UTF-8"])
def test_json_by_each_of_its_names(kind: str, chat: Chat, script: ScriptWriter) -> None:
    """A media type may have parameters, and its case does not matter (RFC 9110, 8.3.1)."""
    script("Served.")
    request = {"model": chat.server.model, "messages": ASK, "max_tokens": 20 if script.exact else 1}
    answer = chat.post("/v1/chat/completions", request, **{"Content-Type": kind})
    assert answer.status_code == 200, answer.text
    chat.check("check_body")(answer.json())


@pytest.mark.covers("VC-029", "VC-037")
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded"])
def test_wrong_content_type(kind: str, chat: Chat, script: ScriptWriter) -> None:
    """The server answers a wrong content type with some 4xx and the error object."""
    answer = chat.post(
        "/v1/chat/completions", {"model": chat.server.model, "messages": ASK}, **{"Content-Type": kind}
    )
    assert 400 <= answer.status_code < 500, answer.text
    chat.check("check_body")(answer.json())
    script("Served.")
    chat.body(max_tokens=20)


@pytest.mark.covers("VC-029")
@pytest.mark.vllm_known_defect("framework-errors-without-error-object")
def test_body_that_is_not_utf8(chat: Chat) -> None:
    chat.refused(b'{"messages": [{"role": "user", "content": "\xff"}]}', "utf|decode|JSON")


@pytest.mark.covers("VC-029")
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/chat/completions", 405), ("PUT", "/v1/models", 405), ("POST", "/v1/chat/nothing", 404)],
)
@pytest.mark.vllm_known_defect("framework-errors-without-error-object")
def test_unknown_path_or_method(method: str, path: str, status: int, chat: Chat) -> None:
    answer = chat.server.endpoint.request(method, path, timeout=60)
    assert answer.status_code == status, answer.text
    assert isinstance(answer.json().get("error"), dict), answer.text


@pytest.mark.covers("VC-029")
def test_error_stays_small(chat: Chat) -> None:
    """The error for an invalid request stays small (vllm#49239: a 4 KB body caused an error of 23 MB)."""
    wrong = {"messages": [{"role": 5, "content": {"a": ["x" * 500]}}] * 500}
    answer = chat.post("/v1/chat/completions", {"model": chat.server.model, **wrong})
    assert answer.status_code == 400
    assert len(answer.content) < 20_000


@pytest.mark.covers("VC-029")
@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
def test_unknown_model(stream: bool, chat: Chat) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        chat.client.chat.completions.create(model="no-such-model", messages=ASK, stream=stream)
    assert "no-such-model" in caught.value.message
    assert chat.server.model in caught.value.message, "the names that are served"
    error: Any = caught.value.body
    assert error["param"] == "model"
    assert error["code"] == 404


@pytest.mark.covers("VC-029", "VC-025")
@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
def test_prompt_longer_than_the_context(stream: bool, chat: Chat) -> None:
    """The request is refused before anything is generated, and the message states the context length."""
    longest = chat.client.models.list().data[0].max_model_len  # type: ignore[attr-defined]
    words = " one two three four" * (longest // 4 + 10)
    error = chat.refused(
        {"messages": [{"role": "user", "content": words}], "stream": stream, "max_tokens": 5},
        f"context|maximum|{longest}",
    )
    assert str(longest) in error["message"]


@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VC-018", "VT-010", "VC-029")
@pytest.mark.vllm_known_defect("vllm-44138")
def test_named_function_among_tools_without_one(chat: Chat) -> None:
    chat.refused({"tools": [{"type": "function"}], "tool_choice": named("get_weather")}, "function")


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-027")
def test_error_after_the_first_token(chat: Chat, script: ScriptWriter) -> None:
    """A stream that fails ends with an error event; here the response format forbids the scripted answer."""
    script("not JSON at all", expect="refused")
    with pytest.raises(openai.APIError, match="was refused at token"):
        list(
            chat.client.chat.completions.create(
                model=chat.server.model, messages=ASK, response_format={"type": "json_object"}, stream=True
            )
        )
    script("Served.")
    assert chat.body(tools=[FREE] if "tools" in chat.server.entry.capabilities else None)
