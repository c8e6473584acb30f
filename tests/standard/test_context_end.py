"""A prompt that fills the context is refused; one that is a token shorter gets an answer of one token."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.apis import APIS, PATHS, Api, Json, question
from tests.own_server import OwnServer
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._server.remote import RemoteServer

pytestmark = [
    pytest.mark.vllm_standard,
    pytest.mark.vllm_scripted,
    pytest.mark.vllm_model("qwen3"),
]

CONTEXT = 256


@pytest.fixture
def server(own_server: OwnServer) -> RemoteServer:
    """A server for the target's model entry with a short context."""
    return own_server(["--max-model-len", str(CONTEXT)])


@pytest.fixture
def book(server: RemoteServer) -> Iterator[ScriptBook]:
    """A script book on the server."""
    book = ScriptBook(server.endpoint, server.entry)
    yield book
    book.close()


def request_of(model: str, api: Api, words: int) -> Json:
    """Returns a request whose prompt has one token more per word; only the context limits the answer."""
    return {
        "model": model,
        **question(api, " the" * words),
        **({"max_tokens": 1} if api == "messages" else {}),
    }


def status_of(book: ScriptBook, model: str, api: Api, words: int) -> int:
    """Returns the HTTP status of a request with this number of words."""
    with book.client(max_retries=0) as client:
        try:
            client.post(PATHS[api].removeprefix("/v1"), body=request_of(model, api, words), cast_to=object)
        except openai.APIStatusError as error:
            return error.status_code
    return 200


@pytest.mark.covers("VR-074")
@pytest.mark.parametrize("api", APIS)
def test_last_token_of_the_context(api: Api, server: RemoteServer, book: ScriptBook) -> None:
    told = book.script("Rain and more rain.", times=3, keep_prompt=True)
    assert status_of(book, server.model, api, 8) == 200
    (short,) = book.prompts(told.name)
    words = 8 + CONTEXT - len(short)
    assert [status_of(book, server.model, api, words - few) for few in (0, 1)] == [400, 200]
    assert [len(prompt) for prompt in book.prompts(told.name)] == [len(short), CONTEXT - 1]


@pytest.mark.covers("VR-074")
@pytest.mark.parametrize("api", APIS)
def test_words_beyond_the_context(api: Api, server: RemoteServer, book: ScriptBook) -> None:
    """The error says "at least", since vLLM stops counting after the first excess token."""
    body = request_of(server.model, api, 2 * CONTEXT)
    with book.client(max_retries=0) as client, pytest.raises(openai.BadRequestError) as refused:
        client.post(PATHS[api].removeprefix("/v1"), body=body, cast_to=object)
    assert f"at least {CONTEXT + 1} input tokens" in refused.value.message
