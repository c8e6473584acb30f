"""Chat Completions on a server with special flags: key, request ids, forced usage, no parsers, limits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.apis import KEYLESS
from tests.chat_api import ASK, FREE, HISTORY, named, output_of, streamed
from tests.own_server import OwnServer
from vllm_harness._protocol import validate_body, validate_stream
from vllm_harness._scripted.book import Raw, ScriptBook
from vllm_harness._server.remote import RemoteServer

pytestmark = [pytest.mark.vllm_standard, pytest.mark.vllm_scripted, pytest.mark.vllm_model("qwen3")]

KEY = "token-of-the-test"
OTHER_KEY = "token-of-another-client"
ALIAS = "the-same-by-another-name"
FLAGS = (
    *("--api-key", KEY, OTHER_KEY, "--enable-request-id-headers", "--enable-force-include-usage"),
    *("--enable-prompt-tokens-details", "--enable-per-request-metrics", "--max-logprobs", "3"),
    *("--return-tokens-as-token-ids", "--fingerprint-mode", "custom", "--fingerprint-value", "ours"),
    *("--exclude-tools-when-tool-choice-none", "--trust-request-chat-template"),
    *("--max-num-queued-reqs", "4", "--enable-tokenizer-info-endpoint"),
)


@pytest.fixture
def server(_vllm_target_server: RemoteServer, own_server: OwnServer) -> RemoteServer:
    """A server for the target's model entry with FLAGS and two model names, but without parsers."""
    bare = _vllm_target_server.entry.model_copy(update={"tool_call_parser": None, "reasoning_parser": None})
    return own_server([*FLAGS, "--served-model-name", bare.name, ALIAS], entry=bare)


@pytest.fixture
def client(book: ScriptBook) -> Iterator[OpenAI]:
    """A client that sends the API key."""
    with book.client() as client:
        yield client


def ask(client: OpenAI, server: RemoteServer, **request: Any) -> Any:
    """Returns the body of a chat completion, or the chunks of a stream."""
    request = {"model": server.model, "messages": ASK, "temperature": 0, **request}
    answer = client.chat.completions.create(**request)
    if request.get("stream"):
        chunks = list(answer)
        assert not [
            finding for finding in validate_stream(chunks, request=_forced(request)) if finding.counts
        ]
        return chunks
    assert not [finding for finding in validate_body(answer, request=request) if finding.counts]
    return answer


def _forced(request: dict[str, Any]) -> dict[str, Any]:
    return {**request, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}


@pytest.mark.covers("VC-030")
@pytest.mark.parametrize("header", [None, "Bearer wrong", f"Basic {KEY}", "Bearer", f"Bearer {KEY} x"])
@pytest.mark.parametrize("path", ["/v1/models", "/v1/chat/completions", "/v1/responses", "/v2/rerank"])
def test_no_entry_without_the_key(path: str, header: str | None, server: RemoteServer) -> None:
    answer = server.endpoint.post(path, json={}, headers={"Authorization": header}, timeout=60)
    assert answer.status_code == 401


@pytest.mark.covers("VC-030")
def test_no_entry_by_the_paths_of_others(server: RemoteServer) -> None:
    """The routes of Anthropic's and Cohere's APIs and vLLM's own routes require the key too."""
    for path in ("/v1/messages", "/cohere/v2/chat", "/inference/v1/generate"):
        assert server.endpoint.post(path, json={}, headers=KEYLESS, timeout=60).status_code == 401, path


@pytest.mark.covers("VC-030")
def test_question_for_options_needs_no_key(server: RemoteServer) -> None:
    """A browser's preflight request does not carry the key (Fetch standard, CORS-preflight fetch)."""
    answer = server.endpoint.request("OPTIONS", "/v1/chat/completions", headers=KEYLESS, timeout=60)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"


@pytest.mark.covers("VC-030")
@pytest.mark.parametrize("header", [f"bearer {KEY}", f"BEARER {KEY}", f"Bearer {OTHER_KEY}"])
def test_entry_with_each_key_and_spelling(header: str, server: RemoteServer) -> None:
    """The authentication scheme is case-insensitive (RFC 9110, 11.1), and each key is accepted."""
    answer = server.endpoint.get("/v1/models", headers={"Authorization": header}, timeout=60)
    assert answer.status_code == 200


@pytest.mark.covers("VC-030")
@pytest.mark.vllm_known_defect("401-without-error-object")
def test_refused_entry_says_so_as_openai_does(server: RemoteServer) -> None:
    answer = server.endpoint.get("/v1/models", headers=KEYLESS, timeout=60)
    assert answer.status_code == 401
    assert not [finding for finding in validate_body(answer.json()) if finding.counts]


@pytest.mark.covers("VC-030")
@pytest.mark.parametrize("path", ["/health", "/version", "/metrics", "/ping"])
def test_operation_needs_no_key(path: str, server: RemoteServer) -> None:
    assert server.endpoint.get(path, headers=KEYLESS, timeout=60).status_code == 200


@pytest.mark.covers("VC-030")
def test_entry_with_the_key(client: OpenAI, server: RemoteServer, book: ScriptBook) -> None:
    book.script(Raw("Rain.<|im_end|>"))
    assert output_of(ask(client, server)).content == "Rain."
    assert client.models.list().data[0].id == server.model


@pytest.mark.covers("VC-010")
def test_choices_without_parsers(client: OpenAI, server: RemoteServer, book: ScriptBook) -> None:
    """Without parsers, the content of each choice is the raw text."""
    said = ["<think>Rain.</think>", "<tool_call>Sun.</tool_call>"]
    book.script(choices=[Raw(f"{text}<|im_end|>") for text in said])
    body = ask(client, server, n=2, temperature=1)
    assert sorted(choice.message.content for choice in body.choices) == said


@pytest.mark.covers("VC-037")
def test_model_under_each_of_its_names(client: OpenAI, server: RemoteServer, book: ScriptBook) -> None:
    names = (server.model, ALIAS)
    cards = list(client.models.list())
    assert tuple(card.id for card in cards) == names
    assert {card.root for card in cards} == {server.launch.model}  # type: ignore[attr-defined]
    book.script(Raw("Rain.<|im_end|>"), times=2)
    for name in names:
        assert output_of(ask(client, server, model=name)).content == "Rain."


@pytest.mark.covers("VC-042")
def test_tokenizer_is_described(server: RemoteServer) -> None:
    answer = server.endpoint.get("/tokenizer_info", timeout=60)
    assert answer.status_code == 200, answer.text
    described = answer.json()
    assert "Qwen2Tokenizer" in described["tokenizer_class"]
    assert "<|im_start|>" in described["chat_template"]


@pytest.mark.covers("VC-030")
def test_no_page_of_another_origin_is_let_in(server: RemoteServer) -> None:
    headers = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    path, send = "/v1/chat/completions", server.endpoint.request
    preflight = send("OPTIONS", path, headers={**KEYLESS, **headers}, timeout=60)
    got = send("GET", "/health", headers={**KEYLESS, "Origin": "https://example.org"}, timeout=60)
    for answer in (preflight, got):
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.covers("VC-030")
def test_request_id_header(client: OpenAI, server: RemoteServer, book: ScriptBook) -> None:
    """The client's request id comes back; without an id, the server makes one of 32 hex digits."""
    book.script(Raw("Rain.<|im_end|>"), times=2)
    create = client.chat.completions.with_raw_response.create
    made = create(model=server.model, messages=ASK)
    own = create(model=server.model, messages=ASK, extra_headers={"X-Request-Id": "mine-1"})
    assert len(made.headers["x-request-id"]) == 32
    assert int(made.headers["x-request-id"], 16) >= 0
    assert own.headers["x-request-id"] == "mine-1"
    assert own.parse().id == "chatcmpl-mine-1"


@pytest.mark.covers("VC-012")
@pytest.mark.parametrize("options", [None, {"include_usage": False}])
def test_forced_usage(options: Any, client: OpenAI, server: RemoteServer, book: ScriptBook) -> None:
    """All chunks, including the last one, contain the usage, whatever the client requests."""
    book.script(Raw("Rain in Rome.<|im_end|>"))
    chunks = ask(client, server, stream=True, stream_options=options)
    assert all(chunk.usage for chunk in chunks)
    counts = [chunk.usage.completion_tokens for chunk in chunks]
    assert all(before <= after for before, after in pairwise(counts))
    assert chunks[-1].choices == []


@pytest.mark.covers("VC-025")
def test_cached_tokens(client: OpenAI, server: RemoteServer, book: ScriptBook) -> None:
    """The second of two equal requests reports cached prompt tokens, in a body and in a stream."""
    book.script(Raw("Rain.<|im_end|>"), times=3)
    long = [{"role": "user", "content": " ".join(f"cached{number}" for number in range(300))}]
    first = ask(client, server, messages=long).usage
    second = ask(client, server, messages=long).usage
    third = ask(client, server, messages=long, stream=True)[-1].usage
    assert (first.prompt_tokens_details.cached_tokens or 0) < first.prompt_tokens // 2
    assert second.prompt_tokens_details.cached_tokens > second.prompt_tokens // 2
    assert third.prompt_tokens_details.cached_tokens == second.prompt_tokens_details.cached_tokens
    assert first.prompt_tokens_details.created_cache_tokens > first.prompt_tokens // 2
    for usage in (second, third):
        assert usage.prompt_tokens_details.created_cache_tokens == 0


@pytest.mark.covers("VC-025")
def test_metrics_of_a_request(client: OpenAI, server: RemoteServer, book: ScriptBook) -> None:
    book.script(Raw("Rain in Rome.<|im_end|>"), times=2)
    body = ask(client, server)
    chunk = ask(client, server, stream=True)[-1]
    for answer in (body, chunk):
        metrics = answer.metrics
        assert metrics["time_to_first_token_ms"] > 0
        assert metrics["tokens_per_second"] > 0
        assert metrics["generation_time_ms"] > 0
        between = answer.usage.completion_tokens - 1
        assert metrics["mean_itl_ms"] == pytest.approx(metrics["generation_time_ms"] / between)


@pytest.mark.covers("VC-002")
def test_limit_of_logprobs(client: OpenAI, server: RemoteServer, book: ScriptBook) -> None:
    with pytest.raises(openai.BadRequestError, match="4"):
        ask(client, server, logprobs=True, top_logprobs=4)
    entries = ask_with_logprobs(client, server, book)
    assert all(len(entry.top_logprobs) == 3 for entry in entries)


def ask_with_logprobs(client: OpenAI, server: RemoteServer, book: ScriptBook, **request: Any) -> list[Any]:
    """Returns the log-probabilities of a scripted answer."""
    book.script(Raw("Rain.<|im_end|>"))
    answer = ask(client, server, logprobs=True, top_logprobs=3, **request)
    entries: list[Any] = answer.choices[0].logprobs.content
    return entries


@pytest.mark.covers("VC-007", "VC-008")
def test_schema_of_all_of_two(client: OpenAI, server: RemoteServer, book: ScriptBook) -> None:
    """Both parts of `allOf` are enforced, even in the first constraint that the server receives."""
    schema = {"allOf": [{"type": "string"}, {"enum": ["yes", "no"]}]}
    by_schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    book.script(Raw('"maybe"<|im_end|>'), expect="refused")
    with pytest.raises(openai.APIStatusError, match="was refused at token"):
        ask(client, server, response_format=by_schema)
    book.script(Raw('"yes"<|im_end|>'))
    assert output_of(ask(client, server, response_format=by_schema)).content == '"yes"'


@pytest.mark.covers("VC-032")
def test_tokens_by_their_ids_by_default(client: OpenAI, server: RemoteServer, book: ScriptBook) -> None:
    """The server returns token ids by default; a request can disable them."""
    assert all(entry.token.startswith("token_id:") for entry in ask_with_logprobs(client, server, book))
    off = ask_with_logprobs(client, server, book, extra_body={"return_tokens_as_token_ids": False})
    assert off[0].token == "Rain"


@pytest.mark.covers("VC-030")
def test_fingerprint_of_ones_own(client: OpenAI, server: RemoteServer, book: ScriptBook) -> None:
    book.script(Raw("Rain.<|im_end|>"), times=2)
    assert ask(client, server).system_fingerprint == "ours"
    assert ask(client, server, stream=True)[-1].system_fingerprint == "ours"


@pytest.mark.covers("VC-026")
@pytest.mark.parametrize(
    ("choice", "flag"),
    [
        (None, "--enable-auto-tool-choice"),
        ("auto", "--enable-auto-tool-choice"),
        ("required", "--tool-call-parser"),
    ],
)
def test_tools_without_a_parser(choice: Any, flag: str, client: OpenAI, server: RemoteServer) -> None:
    """The request is refused, and the error names the missing flag."""
    with pytest.raises(openai.BadRequestError, match=flag):
        ask(client, server, tools=[FREE], **({"tool_choice": choice} if choice else {}))
    with pytest.raises(
        openai.BadRequestError, match='tool_choice=function "get_weather" requires --tool-call'
    ):
        ask(client, server, tools=[FREE], tool_choice=named("get_weather"))


@pytest.mark.covers("VC-027", "VC-030")
def test_more_than_may_wait(client: OpenAI, server: RemoteServer, book: ScriptBook) -> None:
    """The server answers 503 if its queue is full, and serves requests again once there is room."""
    refusing = ScriptBook(server.endpoint, server.entry)
    refusing.script(Raw("never said"))
    with refusing.client() as refused, pytest.raises(openai.InternalServerError) as caught:
        ask(refused, server, n=5, temperature=1)
    refusing.close()
    error: Any = caught.value.body
    assert (caught.value.status_code, error["code"], error["type"]) == (503, 503, "Service Unavailable")
    book.script(Raw("Rain.<|im_end|>"))
    assert output_of(ask(client, server)).content == "Rain."


@pytest.mark.covers("VC-020", "VC-026")
def test_without_parsers_all_is_text(client: OpenAI, server: RemoteServer, book: ScriptBook) -> None:
    raw = '<think>\nHm.\n</think>\n\n<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    book.script(Raw(raw + "<|im_end|>"), times=2)
    body = output_of(ask(client, server))
    assert body == streamed(ask(client, server, stream=True))
    assert body.content == raw
    assert body.finish == "stop"


@pytest.mark.covers("VC-020", "VT-008")
def test_tools_are_kept_from_the_prompt_where_none_is_allowed(
    client: OpenAI, server: RemoteServer, book: ScriptBook
) -> None:
    book.script(Raw("Rain.<|im_end|>"), times=2)
    with_tools = ask(client, server, tools=[FREE], tool_choice="none").usage.prompt_tokens
    assert with_tools == ask(client, server).usage.prompt_tokens


@pytest.mark.covers("VC-027")
def test_template_of_a_trusted_client(client: OpenAI, server: RemoteServer, book: ScriptBook) -> None:
    book.script(Raw("Rain.<|im_end|>"))
    extra = {"chat_template": "<<{{ messages[0].content }}>>", "return_prompt_text": True}
    answer = ask(client, server, extra_body=extra)
    assert answer.prompt_text == "<<What is the weather in Paris?>>"


@pytest.mark.covers("VC-027")
def test_conversation_that_the_template_refuses(client: OpenAI, server: RemoteServer) -> None:
    """An error that the template raises comes back as a client error with its message."""
    extra = {"chat_template": "{{ raise_exception('roles must take turns') }}"}
    with pytest.raises(openai.BadRequestError, match="roles must take turns"):
        ask(client, server, extra_body=extra)


PARTS = """
{%- for message in messages %}
{%- if message['content'] is string %}<{{ message['content'] }}>
{%- else %}{% for part in message['content'] %}({{ part['text'] }}){% endfor %}
{%- endif %}
{%- endfor %}"""


@pytest.mark.covers("VT-002")
def test_output_of_several_parts_is_one_text(client: OpenAI, server: RemoteServer, book: ScriptBook) -> None:
    """Content parts are joined even if the template accepts lists of parts, and no part is lost."""
    book.script(Raw("Rain.<|im_end|>"))
    output = {**HISTORY[-1], "content": [{"type": "text", "text": text} for text in ("rain", "98 percent")]}
    extra = {"chat_template": PARTS, "return_prompt_text": True}
    answer = ask(client, server, messages=[*HISTORY[:-1], output], extra_body=extra)
    assert "(What is the weather in Paris?)" in answer.prompt_text
    assert re.search(r"<rain\s98 percent>$", answer.prompt_text), answer.prompt_text
