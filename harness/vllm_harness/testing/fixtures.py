"""The fixtures, as pytest sees them; what they give is made by `resources.py`, imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from openai import OpenAI

    from vllm_harness.scripted.book import Script, ScriptBook
    from vllm_harness.testing.checks import Checker
    from vllm_harness.testing.scenarios import ScenarioRunner
    from vllm_harness.testing.session import Server
    from vllm_harness.testing.wire import WireTap

Check = Callable[..., None]

TARGET_FIXTURE, SEED_FIXTURE = "_vllm_target_server", "_vllm_seed"


class ScriptWriter:
    """What a test scripts; on the other lanes the model answers as it likes, and nothing is written.

    Attributes:
        exact: whether the model answers exactly what is scripted, so that content can be compared.
    """

    def __init__(self, book: ScriptBook | None) -> None:
        self._book = book
        self.exact = book is not None

    def __call__(self, *args: Any, **options: Any) -> Script | None:
        """Adds a script; see `vllm_harness.scripted.book.ScriptBook.script`."""
        return self._book.script(*args, **options) if self._book else None

    def prompts(self, script: str) -> list[list[int]]:
        """The prompts of a script; see `vllm_harness.scripted.book.ScriptBook.prompts`."""
        return self._book.prompts(script) if self._book else []

    def sampling(self, script: str) -> list[dict[str, Any]]:
        """The sampling parameters of a script; see `vllm_harness.scripted.book.ScriptBook.sampling`."""
        return self._book.sampling(script) if self._book else []


@pytest.fixture(scope="session")
def _vllm_target_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    from vllm_harness.testing.resources import target_server

    yield from target_server(request.config, request.param)


@pytest.fixture(scope="session")
def _vllm_seed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def _vllm_reservation(request: pytest.FixtureRequest) -> None:
    """Stands for the memory that was set aside for the test. Raises what was in the way."""
    from vllm_harness.testing.resources import raise_refused

    raise_refused(request.node)


@pytest.fixture
def vllm_server(
    _vllm_target_server: Server, _vllm_seed: int, _vllm_reservation: None, request: pytest.FixtureRequest
) -> Iterator[Server]:
    """A ready server of the target; one that died in an earlier test is started anew, which is counted."""
    from vllm_harness.testing.resources import ready_server

    yield from ready_server(_vllm_target_server, request.node)


@pytest.fixture
def _vllm_book(vllm_server: Server, request: pytest.FixtureRequest) -> Iterator[ScriptBook | None]:
    from vllm_harness.testing.resources import book

    yield from book(vllm_server, request.node)


@pytest.fixture
def script(_vllm_book: ScriptBook | None, request: pytest.FixtureRequest) -> ScriptWriter:
    """Scripts this test's answers; at its end every script must have been used and followed."""
    return ScriptWriter(None if request.config.option.vllm_replay_tokens else _vllm_book)


@pytest.fixture
def _vllm_tap(vllm_server: Server, _vllm_seed: int, request: pytest.FixtureRequest) -> Iterator[WireTap]:
    from vllm_harness.testing.resources import tap

    yield from tap(_vllm_seed, request.node)


@pytest.fixture
def openai_client(vllm_server: Server, _vllm_book: ScriptBook | None, _vllm_tap: WireTap) -> Iterator[OpenAI]:
    """A sync openai client for the server, answered from this test's scripts; it never retries by itself."""
    from vllm_harness.testing.resources import client

    with client(vllm_server, _vllm_book, _vllm_tap) as openai:
        yield openai


@pytest.fixture
def scenario(vllm_server: Server, request: pytest.FixtureRequest) -> ScenarioRunner:
    """Runs a scenario over every transport, and fails with all that is wrong: `scenario("story.yaml")`."""
    from vllm_harness.testing.scenarios import ScenarioRunner

    return ScenarioRunner(vllm_server, request.node)


@pytest.fixture
def _vllm_checker(vllm_server: Server, request: pytest.FixtureRequest) -> Iterator[Checker]:
    from vllm_harness.testing.resources import checker

    yield from checker(vllm_server, request.node)


@pytest.fixture
def check_stream(_vllm_checker: Checker, request: pytest.FixtureRequest) -> Iterator[Check]:
    """Validates a whole stream; fails on every finding that is not a known deviation of this entry."""
    yield _vllm_checker.stream
    _vllm_checker.want_call("check_stream", request.node)


@pytest.fixture
def check_body(_vllm_checker: Checker, request: pytest.FixtureRequest) -> Iterator[Check]:
    """Validates a body, an error body included, like `check_stream`."""
    yield _vllm_checker.body
    _vllm_checker.want_call("check_body", request.node)


@pytest.fixture
def check_same(_vllm_checker: Checker, request: pytest.FixtureRequest) -> Iterator[Check]:
    """Compares a stream with the non-streaming answer to the same request: `check_same(events, body)`."""
    yield _vllm_checker.same
    _vllm_checker.want_call("check_same", request.node)
