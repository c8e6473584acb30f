"""The pytest fixtures; each imports its dependencies when a test first uses it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from openai import OpenAI

    from vllm_harness._exchange.delivery import Delivery
    from vllm_harness._exchange.server import VllmServer
    from vllm_harness._scripted.book import Content, Expectation, Script, ScriptBook, When
    from vllm_harness._scripted.meaning import ToolCall
    from vllm_harness._testing.checks import BodyCheck, Checker, SameCheck, StreamCheck
    from vllm_harness._testing.scenarios import ScenarioRunner
    from vllm_harness._testing.wire import WireTap

TARGET_FIXTURE, SEED_FIXTURE = "_vllm_target_server", "_vllm_seed"


NO_DELIVERY = (
    "the delivery {} is not available: this server is not scripted, and chooses its chunks itself; mark a "
    "test that needs it `vllm_scripted`, or name a scripted server behind this one with --vllm-books-url"
)


class ScriptWriter:
    """The fixture `script`: scripts the model's answers in a test; does nothing if the model is not scripted.

    Attributes:
        exact: whether the model answers exactly what is scripted, so that a test can compare content.
    """

    def __init__(self, book: ScriptBook | None) -> None:
        self._book = book
        self.exact = book is not None

    def __call__(
        self,
        say: Content | None = None,
        *,
        reasoning: str | None = None,
        calls: Sequence[ToolCall] = (),
        turns: Sequence[Content] = (),
        choices: Sequence[Content] = (),
        when: When | None = None,
        times: int | None = 1,
        name: str | None = None,
        constrained: bool = False,
        delivery: Delivery | str | Sequence[int] | None = None,
        expect: Expectation = "done",
        keep_prompt: bool = False,
    ) -> Script | None:
        """Adds a script to the test's book, as `ScriptBook.script` does; None if nothing is scripted.

        Without a scripted server, a delivery causes a warning, since the server chooses the chunks.
        """
        if self._book is None:
            if delivery is not None:
                warnings.warn(NO_DELIVERY.format(delivery), stacklevel=2)
            return None
        return self._book.script(
            say,
            reasoning=reasoning,
            calls=calls,
            turns=turns,
            choices=choices,
            when=when,
            times=times,
            name=name,
            constrained=constrained,
            delivery=delivery,
            expect=expect,
            keep_prompt=keep_prompt,
        )

    def prompts(self, script: str) -> list[list[int]]:
        """The prompts that a script with `keep_prompt` received, as token ids; see `ScriptBook.prompts`."""
        return self._book.prompts(script) if self._book else []

    def sampling(self, script: str) -> list[dict[str, Any]]:
        """The sampling parameters of a script with `keep_prompt`; see `ScriptBook.sampling`."""
        return self._book.sampling(script) if self._book else []


@pytest.fixture(scope="session")
def _vllm_target_server(request: pytest.FixtureRequest) -> Iterator[VllmServer]:
    """The server of a target, not started yet; it is stopped after the target's last test."""
    from vllm_harness._testing.session import the_run

    servers = the_run(request.config).servers
    yield servers.server_of(request.param)
    servers.end(request.param)


@pytest.fixture(scope="session")
def _vllm_seed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def _vllm_reservation(request: pytest.FixtureRequest) -> None:
    """Raises the HarnessError that prevented reserving memory for the test, if there was one."""
    from vllm_harness._testing.session import the_run

    the_run(request.config).servers.check_reserved()


@pytest.fixture
def vllm_server(
    _vllm_target_server: VllmServer, _vllm_seed: int, _vllm_reservation: None, request: pytest.FixtureRequest
) -> Iterator[VllmServer]:
    """A ready server of the target; if it died in an earlier test, it is restarted; restarts are counted."""
    from vllm_harness._server.remote import RemoteServer
    from vllm_harness._testing.exchanges import EXCHANGES
    from vllm_harness._testing.session import TARGET, needed_by, the_run
    from vllm_harness._testing.tokens import recorded_tokens

    item = request.node
    server = the_run(request.config).servers.ready(item.stash[TARGET], needed_by(item))
    with recorded_tokens(server, item):
        if exchanges := request.config.stash.get(EXCHANGES, None):
            exchanges.begin(item, server)
        yield server
        if isinstance(server, RemoteServer):
            server.check()


@pytest.fixture
def _vllm_book(vllm_server: VllmServer, request: pytest.FixtureRequest) -> Iterator[ScriptBook | None]:
    """The test's script book, verified after the test; None if the model cannot be scripted."""
    if vllm_server.books is None:
        yield None
        return
    from vllm_harness._scripted.book import ScriptBook
    from vllm_harness._server.remote import RemoteServer
    from vllm_harness._testing.session import uses_scripts
    from vllm_harness._testing.tokens import read, recording, script_recording

    book = ScriptBook(vllm_server.books, vllm_server.entry, clients=vllm_server.endpoint)
    if replayed := recording(request.node):
        script_recording(read(replayed), book)
    yield book
    if isinstance(vllm_server, RemoteServer) and not vllm_server.alive():
        return
    if not replayed and uses_scripts(request.node):
        book.finish()
    else:
        book.close()


@pytest.fixture
def script(_vllm_book: ScriptBook | None, request: pytest.FixtureRequest) -> ScriptWriter:
    """Scripts the model's answers; at the end of the test, every script must have been used and followed."""
    return ScriptWriter(None if request.config.option.vllm_replay_tokens else _vllm_book)


@pytest.fixture
def _vllm_tap(vllm_server: VllmServer, _vllm_seed: int, request: pytest.FixtureRequest) -> Iterator[WireTap]:
    """Observes tool calls if nothing is scripted; with --vllm-repeat it sets temperature and seed."""
    from vllm_harness._testing.quality import ObservedRequest, observe
    from vllm_harness._testing.repeats import sampled
    from vllm_harness._testing.session import case_anywhere, is_repeated, result_of
    from vllm_harness._testing.wire import WireTap

    observed: list[ObservedRequest | None] = []
    yield WireTap(
        (lambda body: sampled(body, _vllm_seed)) if is_repeated(request.node) else dict,
        lambda *seen: observed.append(observe(*seen)),
    )
    result_of(request.node).tally.add(case_anywhere(request.node), filter(None, observed))


@pytest.fixture
def openai_client(
    vllm_server: VllmServer, _vllm_book: ScriptBook | None, _vllm_tap: WireTap
) -> Iterator[OpenAI]:
    """A sync openai client for the server; it is answered from this test's scripts, and never retries."""
    with _vllm_book.client() if _vllm_book else _vllm_tap.client(vllm_server) as openai:
        yield openai


@pytest.fixture
def scenario(vllm_server: VllmServer, request: pytest.FixtureRequest) -> ScenarioRunner:
    """Runs a scenario over every transport, and fails with all its problems: `scenario("story.yaml")`."""
    from vllm_harness._testing.scenarios import ScenarioRunner

    return ScenarioRunner(vllm_server, request.node)


@pytest.fixture
def _vllm_checker(vllm_server: VllmServer, request: pytest.FixtureRequest) -> Iterator[Checker]:
    """The state that the test's checks share; their findings are added to the target's result."""
    from vllm_harness._testing.cases import note
    from vllm_harness._testing.checks import Checker
    from vllm_harness._testing.session import result_of, the_run

    exact = vllm_server.books is not None and not request.config.option.vllm_replay_tokens
    known = the_run(request.config).known_of(vllm_server)
    checker = Checker(known, vllm_server.vllm_version, exact, report=partial(note, request.node))
    yield checker
    result_of(request.node).add(checker.findings)
    checker.check_calls(request.node)


@pytest.fixture
def check_stream(_vllm_checker: Checker) -> StreamCheck:
    """Validates a whole stream; fails on every finding that is not a known deviation of the model entry."""
    from vllm_harness._testing.checks import StreamCheck

    return StreamCheck(_vllm_checker)


@pytest.fixture
def check_body(_vllm_checker: Checker) -> BodyCheck:
    """Validates a body, or an error body, as `check_stream` validates a stream."""
    from vllm_harness._testing.checks import BodyCheck

    return BodyCheck(_vllm_checker)


@pytest.fixture
def check_same(_vllm_checker: Checker) -> SameCheck:
    """Compares a stream with the non-streaming answer to the same request: `check_same(events, body)`."""
    from vllm_harness._testing.checks import SameCheck

    return SameCheck(_vllm_checker)
