"""Deliveries: the serving code takes exactly the chunks that were asked for, over each API and under load."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import pytest

from tests.scripted.gateway import gateway
from vllm_harness._exchange.endpoint import API_PATHS, Endpoint
from vllm_harness._exchange.sending import Outgoing, http_client, send
from vllm_harness._exchange.server import VllmServer
from vllm_harness._protocol import Exchange
from vllm_harness._scripted.book import BookError, Script, ScriptBook, When
from vllm_harness._scripted.in_server.vllm_harness_names import DELIVERY_HEADER, NO_DELIVERY
from vllm_harness._server.remote import RemoteServer

pytestmark = [pytest.mark.vllm_scripted, pytest.mark.vllm_model("qwen3")]

AT_ONCE = 24
TEXT = "one two three four five six seven eight nine ten eleven twelve."
PATHS: Mapping[str, str] = {**API_PATHS, "completions": "/v1/completions"}
CODES = ("tokens_1", "tokens_4", "tokens_3_with_end", "cut_at_3_7", "cut_at_1_2_11_with_end", "all")


def chunks_of(code: str, length: int) -> list[int]:
    """Returns the number of tokens in each chunk of an answer of `length` tokens, its end token included."""
    shape, _, numbers = code.removesuffix("_with_end").partition("_")
    last = length if code.endswith("_with_end") else length - 1
    cuts = {
        "tokens": lambda: range(int(numbers), last, int(numbers)),
        "all": lambda: (),
        "cut": lambda: map(int, numbers.removeprefix("at_").split("_")),
    }[shape]()
    edges = sorted({0, *cuts, last, length})
    return [end - start for start, end in pairwise(edges)]


def request(api: str, text: str = "Hi", **more: Any) -> dict[str, Any]:
    """Returns a streamed request of an API; `text` selects the script."""
    said: Mapping[str, dict[str, Any]] = {
        "responses": {"input": text},
        "chat": {"messages": [{"role": "user", "content": text}], "return_token_ids": True},
        "messages": {"messages": [{"role": "user", "content": text}], "max_tokens": 100},
        "completions": {"prompt": text, "max_tokens": 100, "return_token_ids": True},
    }
    return {"model": "qwen3", "stream": True, **said[api], **more}


def sent(endpoint: Endpoint, api: str, body: Any, code: str) -> Exchange:
    """Sends a request with the header that asks for a delivery."""
    with http_client(endpoint) as client:
        return send(client, Outgoing(endpoint, PATHS[api], body, {DELIVERY_HEADER: code}))


def named_tokens(exchange: Exchange, choice: int = 0) -> list[int]:
    """Returns the numbers of tokens that the events of a Chat or Completions stream name."""
    return [
        len(each["token_ids"])
        for event in exchange.json_events
        for each in event["choices"]
        if each["index"] == choice and each.get("token_ids")
    ]


def taken(book: ScriptBook) -> list[dict[str, Any]]:
    """Returns what the book reports of each delivery."""
    return [use["delivery"] for use in book.report()["uses"]]


@pytest.fixture
def book(vllm_server: VllmServer) -> Any:
    """A book on the server."""
    assert isinstance(vllm_server, RemoteServer)
    book = ScriptBook(vllm_server.endpoint, vllm_server.entry)
    yield book
    book.close()


def test_exact_chunks_over_each_api_under_load(book: ScriptBook) -> None:
    """24 streams run at a time; Chat and Completions name the ids of the tokens in each event."""
    scripts: dict[str, Script] = {
        code: book.script(TEXT, when=When(user=f"^{code}$"), times=len(PATHS), delivery=code, name=code)
        for code in CODES
    }
    asked = [(api, code) for api in PATHS for code in CODES]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(
            pool.map(lambda each: sent(book.endpoint, each[0], request(each[0], each[1]), ""), asked)
        )
    assert [answer.content for answer in answers if not answer.ok] == []
    expected = {code: chunks_of(code, len(script.takes[0])) for code, script in scripts.items()}
    uses = book.report()["uses"]
    found = {(use["path"], use["script"]): use["delivery"] for use in uses}
    for (api, code), answer in zip(asked, answers, strict=True):
        delivery = found[PATHS[api], code]
        assert (delivery["chunks"], delivery["held"]) == ([expected[code]], True), (api, code)
        if api in ("chat", "completions"):
            assert named_tokens(answer) == expected[code], (api, code)


def test_exact_chunks_of_each_choice(book: ScriptBook) -> None:
    """Each of two choices is divided by the same code."""
    script = book.script(choices=[TEXT, "Yes."], times=2)
    expected = [chunks_of("tokens_3", len(take)) for take in script.takes]
    for api in ("chat", "completions"):
        answer = sent(book.endpoint, api, request(api, n=2, temperature=1), "tokens_3")
        assert [named_tokens(answer, choice) for choice in range(2)] == expected
    assert [sorted(each["chunks"]) for each in taken(book)] == [sorted(expected)] * 2


def test_chunks_that_are_listed(book: ScriptBook) -> None:
    """The last chunk holds the rest; cuts after characters end with the token that completes them."""
    script = book.script(TEXT, delivery=[1, 4, 2])
    length = len(script.takes[0])
    assert sent(book.endpoint, "responses", request("responses"), "").ok
    book.script(TEXT)
    assert sent(book.endpoint, "messages", request("messages"), "cut_after_12_30").ok
    listed, after = taken(book)
    assert listed["chunks"] == [[1, 4, 2, length - 8, 1]]
    texts = [book.decode(list(script.takes[0][:end])) for end in accumulate(after["chunks"][0])]
    starts = [book.decode(list(script.takes[0][: end - 1])) for end in accumulate(after["chunks"][0])]
    for place, (start, text) in zip((12, 30), zip(starts, texts, strict=True), strict=False):
        assert len(start) < place <= len(text)


def test_unknown_delivery_is_refused(book: ScriptBook) -> None:
    book.script(TEXT, times=None)
    answer = sent(book.endpoint, "chat", request("chat"), "in_heaps")
    assert answer.status == 400
    assert answer.body is not None
    assert answer.body["error"]["code"] == NO_DELIVERY
    assert "in_heaps" in answer.body["error"]["message"]
    assert "tokens_3" in answer.body["error"]["message"]


@pytest.mark.parametrize("api", ["responses", "chat"])
def test_body_is_not_affected(api: str, book: ScriptBook) -> None:
    book.script(TEXT, times=2)
    plain, asked = (sent(book.endpoint, api, request(api, stream=False), code) for code in ("", "tokens_3"))
    assert plain.body is not None
    assert asked.body is not None
    assert plain.body["usage"] == asked.body["usage"]
    assert taken(book) == [None, None]


def test_server_without_books_is_named(vllm_server: VllmServer) -> None:
    """Behind a gateway that offers only the paths of `/v1`, a server cannot hold a delivery."""
    direct = vllm_server.endpoint
    with gateway(f"{direct.base_url}/v1") as address:
        book = ScriptBook(replace(direct, base_url=address), vllm_server.entry)
        with pytest.raises(BookError, match="404") as caught:
            book.script("Never said.", delivery="tokens_1")
    assert "a server of the scripted lane" in caught.value.hint
