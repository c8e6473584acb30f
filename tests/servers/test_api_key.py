"""A server that requires an API key: all code that sends plain requests sends it, even test helpers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.apis import APIS, KEYLESS, PATHS, Api, Json, endpoint_of, opened, question
from tests.chat_api import Chat
from tests.defects.wire import Wire
from tests.messages_api import messages_on
from tests.responses_api import Responses
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._server.launch import Launch
from vllm_harness._server.remote import RemoteServer
from vllm_harness._testing.fixtures import ScriptWriter

KEY = "key-of-the-test"


@pytest.fixture(scope="module")
def server(launch: Callable[..., Launch]) -> Iterator[RemoteServer]:
    """A server that requires the API key."""
    with RemoteServer(launch(env={"VLLM_API_KEY": KEY})) as server:
        yield server


def request_for(server: RemoteServer, api: Api) -> Json:
    """A request body for an API."""
    return {"model": server.model, **question(api)}


@pytest.mark.parametrize("api", APIS)
def test_only_the_key_is_accepted(api: Api, server: RemoteServer, book: ScriptBook) -> None:
    """Requests carry the key by default; a test may send another key or none."""
    book.script("Rain.")
    path, request = PATHS[api], request_for(server, api)
    assert book.endpoint.post(path, json=request).status_code == 200
    assert book.endpoint.post(path, json=request, headers=KEYLESS).status_code == 401
    assert replace(book.endpoint, api_key="another").post(path, json=request).status_code == 401
    wrong = {"Authorization": "Bearer another", "X-API-Key": "another"}
    assert book.endpoint.post(path, json=request, headers=wrong).status_code == 401


def test_a_get_carries_the_key(server: RemoteServer) -> None:
    assert server.endpoint.get("/v1/models").json()["data"][0]["id"] == server.model
    assert server.endpoint.get("/v1/models", headers=KEYLESS).status_code == 401


def test_the_endpoint_of_an_sdk_client(book: ScriptBook) -> None:
    with book.client() as client, book.client(timeout=7, default_headers={"x-more": "1"}) as other:
        assert endpoint_of(client) == book.endpoint
        more = endpoint_of(other)
    assert (more.base_url, more.api_key, more.request_s) == (book.endpoint.base_url, KEY, 7)
    assert dict(more.headers) == {**dict(book.endpoint.headers), "x-more": "1"}


@pytest.mark.parametrize("api", APIS)
def test_an_opened_stream_carries_the_key(api: Api, server: RemoteServer, book: ScriptBook) -> None:
    book.script("Rain.")
    request = {**request_for(server, api), "stream": True}
    with opened(book.endpoint, "POST", PATHS[api], json=request) as answer:
        assert answer.status_code == 200
        assert "Rain" in answer.read().decode()


def test_the_helpers_of_the_suites_send_the_key(
    server: RemoteServer, book: ScriptBook, request: pytest.FixtureRequest
) -> None:
    book.script("Rain.", times=4)
    check = request.getfixturevalue
    with book.client() as client, messages_on(book.endpoint, server.model, check) as messages:
        chat = Chat(server, client, check, ScriptWriter(book))
        answers = [
            chat.post(PATHS["chat"], request_for(server, "chat")),
            Responses(client, server.model, check).post(request_for(server, "responses")),
            messages.post(request_for(server, "messages")),
            Wire(endpoint_of(client), server.model).post("responses", input="Hi"),
        ]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert chat.text(chat.tokens("Rain.")) == "Rain."
