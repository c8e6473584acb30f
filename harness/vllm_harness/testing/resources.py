"""What the fixtures give: a ready server, its script book, clients and checks; cleans up after each test."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from vllm_harness.configuration.targets import Target
from vllm_harness.exchange.endpoint import Endpoint, tls
from vllm_harness.scripted.book import ScriptBook
from vllm_harness.scripted.recording import TokenRecord, begin, taken
from vllm_harness.server.remote import RemoteServer
from vllm_harness.testing import tokens
from vllm_harness.testing.cases import note
from vllm_harness.testing.checks import Checker
from vllm_harness.testing.exchanges import KEEPER, SERVED, Served
from vllm_harness.testing.quality import ObservedRequest, observe
from vllm_harness.testing.repeats import sampled
from vllm_harness.testing.servers import make_ready, serve
from vllm_harness.testing.session import (
    BODY,
    REFUSED,
    SHOWN,
    TARGET,
    Server,
    case_anywhere,
    is_repeated,
    needed_by,
    result_of,
    target_of,
    the_run,
)
from vllm_harness.testing.wire import WireTap

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI


def target_server(config: pytest.Config, target: Target) -> Iterator[Server]:
    """A target's server, stopped afterwards where this run started it."""
    yield from serve(the_run(config), target)


def raise_refused(item: pytest.Item) -> None:
    """Raises the HarnessError for which no memory was set aside for a test."""
    if refused := item.stash.get(REFUSED, None):
        raise refused


def ready_server(server: Server, item: pytest.Item) -> Iterator[Server]:
    """A target's server while a test uses it; its tokens are recorded where the run wants them."""
    make_ready(the_run(item.config), target_of(item), server, needed_by(item))
    kept, replayed = item.config.option.vllm_record_tokens, item.config.option.vllm_replay_tokens
    records = isinstance(server, RemoteServer) and bool(kept or replayed)
    if records:
        begin(server.endpoint)
    if keeper := item.config.stash.get(KEEPER, None):
        keeper.watch.taken()  # the harness's own questions
        item.stash[SERVED] = Served.now(server)
    yield server
    if isinstance(server, RemoteServer):
        server.check()
    if records:
        _settle_tokens(taken(server.endpoint), item)


def book(server: Server, item: pytest.Item) -> Iterator[ScriptBook | None]:
    """A test's script book where the model can be scripted, verified at its end; None elsewhere."""
    told = _told(server)
    if told is None:
        yield None
        return
    opened = ScriptBook(told, server.entry, clients=server.endpoint)
    replayed = recording(item)
    if replayed:
        tokens.script_recording(tokens.read(replayed), opened)
    yield opened
    if not isinstance(server, RemoteServer) or server.alive():
        if not replayed and _is_to_use_its_scripts(item):
            opened.finish()
        else:
            opened.close()


def _told(server: Server) -> Endpoint | None:
    """Where the server of a test is told what its model answers; None where it cannot be told."""
    if isinstance(server, RemoteServer):
        return server.endpoint if server.lane == "scripted" else None
    return server.books


def _is_to_use_its_scripts(item: pytest.Item) -> bool:
    if item.stash.get(BODY, None) == "defect":
        return item.stash[SHOWN].scripts == "used"
    return item.stash.get(BODY, None) in {"passed", "failed"}


def tap(seed: int, item: pytest.Item) -> Iterator[WireTap]:
    """Watches for tool calls where nothing is scripted; with --vllm-repeat sets temperature and seed."""
    repeated, observed = is_repeated(item), list[ObservedRequest]()

    def seen(body: dict[str, Any], status: int, answer: bytes) -> None:
        if request := observe(body, status, answer):
            observed.append(request)

    yield WireTap((lambda body: sampled(body, seed)) if repeated else dict, seen)
    result_of(item).tally.add(case_anywhere(item), observed)


def client(server: Server, book: ScriptBook | None, tap: WireTap) -> OpenAI:
    """A sync openai client."""
    if book:
        return book.client()
    from openai import DefaultHttpxClient

    return server.client(http_client=DefaultHttpxClient(event_hooks=tap.hooks(), verify=tls()))


def async_client(server: Server, book: ScriptBook | None, tap: WireTap) -> AsyncOpenAI:
    """An async openai client."""
    if book:
        return book.async_client()
    from openai import DefaultAsyncHttpxClient

    http_client = DefaultAsyncHttpxClient(event_hooks=tap.async_hooks(), verify=tls())
    return server.async_client(http_client=http_client)


def checker(server: Server, item: pytest.Item) -> Iterator[Checker]:
    """A test's checks; their findings go into the record of its target."""
    exact = _told(server) is not None and not item.config.option.vllm_replay_tokens
    made = Checker(
        the_run(item.config).known_of(server), server.vllm_version, exact, judged=partial(note, item)
    )
    yield made
    result_of(item).add(made.findings)


def recording(item: pytest.Item) -> Path | None:
    """The recording that a test replays."""
    folder, target = item.config.option.vllm_replay_tokens, item.stash[TARGET]
    return folder and tokens.file_in(folder / f"live-{target.entry.name}", item.nodeid, target.id)


def replayable(item: pytest.Item) -> bool:
    """Whether a test has a recording that can be scripted."""
    path = recording(item) if TARGET in item.stash else None
    records = tokens.read(path) if path is not None and path.exists() else []
    return bool(records) and all(record.scriptable for record in records)


def _settle_tokens(records: list[TokenRecord], item: pytest.Item) -> None:
    target = item.stash[TARGET]
    if kept := item.config.option.vllm_record_tokens:
        tokens.write(records, tokens.file_in(kept / target.id, item.nodeid, target.id))
    if (replayed := recording(item)) and (differ := tokens.differences(tokens.read(replayed), records)):
        pytest.fail("the replay differs from the live run:\n" + "\n".join(differ), pytrace=False)
