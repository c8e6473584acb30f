"""Endpoints and properties of a server: models, tokens, ids, fingerprint, batches of conversations."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apis import APIS, PATHS, Api, question, request_fields
from tests.chat_api import ASK, Chat
from vllm_harness._scripted.book import Raw
from vllm_harness._testing.fixtures import ScriptWriter


@pytest.mark.covers("VC-037")
def test_models(chat: Chat) -> None:
    models = chat.client.models.list()
    assert chat.server.model in [model.id for model in models.data]
    model = next(each for each in models.data if each.id == chat.server.model)
    assert (models.object, model.object) == ("list", "model")
    assert model.max_model_len > 0  # type: ignore[attr-defined]


@pytest.mark.covers("VC-037")
@pytest.mark.parametrize("path", ["/ping", "/metrics", "/openapi.json"])
def test_it_answers(path: str, chat: Chat) -> None:
    assert chat.server.endpoint.get(path).status_code == 200


@pytest.mark.vllm_standard
@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VC-009")
@pytest.mark.parametrize("api", APIS)
def test_defaults_may_be_said(api: Api, chat: Chat, script: ScriptWriter) -> None:
    """A request may explicitly contain the defaults that the server's OpenAPI schema states."""
    script("Rain.")
    fields = request_fields(chat.server.endpoint.get("/openapi.json").json(), api)
    defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
    assert defaults["stream"] is False
    answer = chat.post(PATHS[api], {**defaults, "model": chat.server.model, **question(api)})
    assert answer.status_code == 200, answer.text
    assert "Rain." in answer.text


@pytest.mark.covers("VC-042")
@pytest.mark.parametrize("text", ["Zürich 🏔 日本語", "", "two  blanks\nand a line", "<|im_end|><|end|>"])
def test_tokens_there_and_back(text: str, chat: Chat) -> None:
    """/detokenize restores the text that /tokenize was given, including special tokens."""
    request = {"model": chat.server.model, "prompt": text, "add_special_tokens": False}
    answer = chat.post("/tokenize", {**request, "return_token_strs": True}).json()
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
    assert "\ufffd" not in "".join(answer["token_strs"]), "part of a character is lost"
    assert chat.text(answer["tokens"]) == text


@pytest.mark.covers("VC-042")
@pytest.mark.parametrize(
    "wrong", [{"prompt": 5}, {}, {"messages": "hi"}, {"prompt": "hi", "model": "no-such-model"}]
)
def test_wrong_text_for_tokens(wrong: dict[str, Any], chat: Chat) -> None:
    answer = chat.post("/tokenize", wrong)
    assert answer.status_code in (400, 404), answer.text
    chat.check("check_body")(answer.json())


@pytest.mark.covers("VC-042")
@pytest.mark.parametrize("tokens", [[-1], ["x"], [2**70], "5"])
def test_wrong_tokens_for_text(tokens: Any, chat: Chat) -> None:
    answer = chat.post("/detokenize", {"model": chat.server.model, "tokens": tokens})
    assert answer.status_code == 400, answer.text
    chat.check("check_body")(answer.json())


@pytest.mark.covers("VC-042")
@pytest.mark.vllm_known_defect("detokenize-takes-ids-beyond-vocabulary")
def test_token_beyond_the_vocabulary(chat: Chat) -> None:
    answer = chat.post("/detokenize", {"model": chat.server.model, "tokens": [10**9]})
    assert answer.status_code == 400, answer.text


@pytest.mark.covers("VC-030", "VC-011")
@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
def test_request_id_of_the_client(stream: bool, chat: Chat, script: ScriptWriter) -> None:
    """X-Request-Id becomes the completion's id, and is the same in every chunk."""
    script("Rain.")
    headers = {"X-Request-Id": f"mine-{stream}-17"}
    if stream:
        ids = {chunk.id for chunk in chat.stream(extra_headers=headers, max_tokens=20)}
    else:
        ids = {chat.body(extra_headers=headers, max_tokens=20).id}
    assert ids == {f"chatcmpl-mine-{stream}-17"}


@pytest.mark.covers("VC-011", "VC-030")
def test_request_id_in_the_body(chat: Chat, script: ScriptWriter) -> None:
    script("Rain.", times=2)
    assert chat.body(request_id="of-the-body-1", max_tokens=20).id == "chatcmpl-of-the-body-1"
    other = chat.body(
        request_id="of-the-body-2", extra_headers={"X-Request-Id": "of-the-header"}, max_tokens=20
    )
    assert other.id == "chatcmpl-of-the-header"


@pytest.mark.covers("VC-030")
def test_ids_are_unique(chat: Chat, script: ScriptWriter) -> None:
    script("Rain.", times=3)
    ids = [chat.body(max_tokens=20).id for _ in range(3)]
    assert len(set(ids)) == 3
    assert all(identifier.startswith("chatcmpl-") for identifier in ids)


@pytest.mark.covers("VC-030")
def test_no_request_id_header_unless_configured(chat: Chat) -> None:
    answer = chat.post("/tokenize", {"model": chat.server.model, "prompt": "hi"})
    assert "x-request-id" not in answer.headers


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-030")
def test_fingerprint(chat: Chat, script: ScriptWriter) -> None:
    """A server has one fingerprint: in bodies, and in the last chunk of a stream."""
    script("Rain.", times=4)
    first, second = chat.body(), chat.body()
    assert first.system_fingerprint
    assert first.system_fingerprint == second.system_fingerprint
    assert chat.stream()[-1].system_fingerprint == first.system_fingerprint
    assert chat.stream(stream_options=None)[-1].system_fingerprint == first.system_fingerprint


@pytest.mark.covers("VC-028")
def test_batch_of_conversations(chat: Chat, script: ScriptWriter) -> None:
    """The answer to a batch has one choice for each conversation."""
    script("One, two, three, four, five, six, seven, eight, nine, ten.", expect="truncated", times=4)
    conversations = [ASK, [{"role": "user", "content": "Count to three."}], ASK]
    answer = chat.post(
        "/v1/chat/completions/batch",
        {
            "model": chat.server.model,
            "messages": conversations,
            "max_tokens": 8,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": 2,
        },
    )
    assert answer.status_code == 200, answer.text
    body = answer.json()
    chat.check("check_body")(body, request={"n": 3})
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert body["usage"]["completion_tokens"] == 24
    alone = [
        chat.post("/v1/chat/completions", {"model": chat.server.model, "messages": each, "max_tokens": 1})
        for each in conversations
    ]
    assert body["usage"]["prompt_tokens"] == sum(each.json()["usage"]["prompt_tokens"] for each in alone)
    assert all(0 < len(choice["logprobs"]["content"]) <= 8 for choice in body["choices"])
    assert body["choices"][0]["message"] == body["choices"][2]["message"]
    tokens = [token for choice in body["choices"] for token in choice["logprobs"]["content"]]
    assert {len(token["top_logprobs"]) for token in tokens} == {2}


@pytest.mark.vllm_standard
@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VC-028")
def test_options_of_a_batch(chat: Chat, script: ScriptWriter) -> None:
    """In a batch, max_completion_tokens and template arguments that switch reasoning off take effect."""
    script(Raw("One, two, three, four, five, six."), expect="truncated")
    answer = chat.post(
        "/v1/chat/completions/batch",
        {
            "model": chat.server.model,
            "messages": [ASK, ASK],
            "max_completion_tokens": 5,
            "chat_template_kwargs": {"enable_thinking": False},
        },
    )
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["usage"]["completion_tokens"] == 10
    assert [choice["message"]["content"] for choice in body["choices"]] == ["One, two, three"] * 2


@pytest.mark.vllm_standard
@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VC-028")
def test_echo_of_a_batch(chat: Chat, script: ScriptWriter) -> None:
    """With `echo`, the answer starts with the assistant's last message, but never with a user's."""
    script("Rain.")
    answer = chat.post(
        "/v1/chat/completions/batch",
        {
            "model": chat.server.model,
            "messages": [ASK, [*ASK, {"role": "assistant", "content": "Clouds. "}]],
            "echo": True,
        },
    )
    assert answer.status_code == 200, answer.text
    contents = [choice["message"]["content"] for choice in answer.json()["choices"]]
    assert [content.strip().split() for content in contents] == [["Rain."], ["Clouds.", "Rain."]]


@pytest.mark.vllm_scripted
@pytest.mark.vllm_needs("reasoning")
@pytest.mark.covers("VC-028", "VC-020")
@pytest.mark.parametrize(
    "shown",
    [{}, {"include_reasoning": True}, {"include_reasoning": False}],
    ids=["by default", "shown", "hidden"],
)
def test_reasoning_of_a_batch(shown: dict[str, Any], chat: Chat, script: ScriptWriter) -> None:
    """Each conversation has its own reasoning, unless the request excludes it."""
    script("Rain.", reasoning="Clouds.")
    request = {"model": chat.server.model, "messages": [ASK, ASK], "temperature": 0, **shown}
    answer = chat.post("/v1/chat/completions/batch", request)
    assert answer.status_code == 200, answer.text
    messages = [choice["message"] for choice in answer.json()["choices"]]
    assert [message["content"].strip() for message in messages] == ["Rain."] * 2
    thoughts = None if False in shown.values() else "Clouds."
    assert [(message.get("reasoning") or "").strip() or None for message in messages] == [thoughts] * 2


@pytest.mark.covers("VC-028")
@pytest.mark.parametrize(
    ("wrong", "status", "expected"),
    [
        ({"n": 2}, 400, "n"),
        ({"messages": []}, 400, "messages"),
        ({"messages": ASK}, 400, "messages"),
        ({"use_beam_search": True}, 400, "beam"),
        ({"model": "no-such-model"}, 404, "no-such-model"),
    ],
    ids=["n", "nothing", "one conversation", "beam search", "unknown model"],
)
def test_wrong_batch(wrong: dict[str, Any], status: int, expected: str, chat: Chat) -> None:
    answer = chat.post(
        "/v1/chat/completions/batch",
        {"model": chat.server.model, "messages": [ASK], "max_tokens": 3, **wrong},
    )
    assert answer.status_code == status, answer.text
    chat.check("check_body")(answer.json())
    error = answer.json()["error"]
    assert expected in error["message"]
    assert error["code"] == status
