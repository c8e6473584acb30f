"""The prefix cache in the usage of Anthropic Messages, on a server that reports prompt details."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.messages_api import Messages, messages_on
from tests.own_server import OwnServer
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._server.remote import RemoteServer

pytestmark = [
    pytest.mark.vllm_scripted,
    pytest.mark.vllm_model("qwen3", "gpt-oss"),
    pytest.mark.vllm_needs("messages"),
    pytest.mark.timeout(400),
]

LONG = "This is a long prompt that fills several blocks of the cache. " * 60


@pytest.fixture
def server(own_server: OwnServer) -> RemoteServer:
    """A server that reports how much of a prompt was cached."""
    return own_server(["--enable-prompt-tokens-details"])


@pytest.fixture
def book(server: RemoteServer) -> Iterator[ScriptBook]:
    """The scripts of one test on the server that reports cached tokens."""
    book = ScriptBook(server.endpoint, server.entry)
    yield book
    book.verify()


@pytest.fixture
def cached(server: RemoteServer, book: ScriptBook, request: pytest.FixtureRequest) -> Iterator[Messages]:
    """The Messages API of the server that reports cached tokens."""
    with messages_on(book.endpoint, server.model, request.getfixturevalue) as messages:
        yield messages


@pytest.mark.covers("VA-006", "VA-011", "VA-015")
def test_cold_and_warm_streams(cached: Messages, book: ScriptBook) -> None:
    """A cold cache serves no tokens, a warm one most; the three token counts add up to the whole prompt."""
    book.script("Yes.", times=2)
    prompt = f"cold and warm: {LONG}"
    total = cached.count(prompt)
    cold, warm = (cached.stream(prompt) for _ in range(2))
    for stream in (cold, warm):
        start = stream.of("message_start")[0]["message"]["usage"]
        assert "cache_read_input_tokens" not in start
        assert start["input_tokens"] == total
        end = stream.of("message_delta")[0]["usage"]
        counts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        assert sum(end.get(count, 0) for count in counts) == total
    assert cold.of("message_delta")[0]["usage"]["cache_read_input_tokens"] == 0
    assert warm.of("message_delta")[0]["usage"]["cache_read_input_tokens"] > total // 2


@pytest.mark.covers("VA-011")
def test_cold_and_warm_bodies(cached: Messages, book: ScriptBook) -> None:
    book.script("Yes.", times=2)
    prompt = f"bodies: {LONG}"
    cold, warm = (cached.create(prompt).usage for _ in range(2))
    for usage in (cold, warm):
        counted = usage.input_tokens + (usage.cache_read_input_tokens or 0)
        assert counted + (usage.cache_creation_input_tokens or 0) == cached.count(prompt)
    assert cold.cache_read_input_tokens == 0
    assert (warm.cache_read_input_tokens or 0) > 0


@pytest.mark.covers("VA-017")
def test_cache_salt_separates(cached: Messages, book: ScriptBook) -> None:
    """The same prompt with another cache salt is not found in the cache."""
    book.script("Yes.", times=3)
    prompt = f"salted: {LONG}"
    usages = [cached.create(prompt, cache_salt=salt).usage for salt in ("a", "b", "a")]
    read = [usage.cache_read_input_tokens or 0 for usage in usages]
    assert read[:2] == [0, 0]
    assert read[2] > 0
