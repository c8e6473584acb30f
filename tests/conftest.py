"""Fixtures and hooks that all test modules share."""

from __future__ import annotations

import dataclasses
import gc
import importlib
import signal
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._environments.resolve import resolve, spec_of
from vllm_harness._environments.spec import Environment
from vllm_harness._extensions import installed
from vllm_harness._server.launch import Launch, plan_launch
from vllm_harness._testing.cuda import explain_missing_gpu

settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")
pytest.register_assert_rewrite(
    "tests.behaviours", "tests.chat_api", "tests.messages_api", "tests.responses_api"
)
pytest_plugins = [
    "pytester",
    "tests.apis",
    "tests.chat_api",
    "tests.constraints",
    "tests.messages_api",
    "tests.own_server",
    "tests.responses_api",
    "tests.selection",
    "tests.whole_run",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options of this project's own tests."""
    kills = "how often the kill -9 test kills each kind of process; 1: only a few kinds"
    parser.addoption("--kills", type=int, default=20, help=kills)


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers of this project's own tests, and lets commands end by signals that tests send.

    Background jobs of a shell and all of their children ignore SIGINT, and those of `nohup` ignore SIGHUP.
    """
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: lambda *_: None}
    for number, handler in handlers.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    config.addinivalue_line("markers", "gpu: the test runs on CUDA (added wherever the plugin adds vllm_gpu)")
    drawn = "drawn(group, most): only `most` tests of the group run, redrawn daily; --vllm-slow runs all"
    config.addinivalue_line("markers", drawn)
    extra = "extra(name): the test needs this extra of the harness"
    config.addinivalue_line("markers", extra)
    config.addinivalue_line("markers", "covers(*ids): behaviours that the test covers; see coverage.yaml")


@pytest.hookimpl(trylast=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Makes `-m gpu` select tests that the plugin marks, and skips tests whose extra is not installed."""
    for marker in item.iter_markers("extra"):
        if not installed(marker.args[0]):
            item.add_marker(pytest.mark.skip(reason=f"needs the extra {marker.args[0]} of the harness"))
    if item.get_closest_marker("vllm_gpu"):
        item.add_marker("gpu")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Stops a run of `-m gpu` with an explanation if there is no test to run."""
    explain_missing_gpu(config, items, "gpu")


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Disables garbage collection during test collection, where it costs time and frees nothing."""
    gc.disable()
    session.config.add_cleanup(gc.enable)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Excludes collected tests from garbage collection, and imports slow modules before a run forks."""
    gc.freeze()
    gc.enable()
    if session.config.getoption("vllm_at_once", 0) and any(
        "messages" in getattr(item, "fixturenames", ()) for item in session.items
    ):
        importlib.import_module("anthropic")


@pytest.fixture(scope="session")
def environment(request: pytest.FixtureRequest) -> Environment:
    """The server environment that this run uses."""
    option = request.config.option
    return resolve(spec_of(option.vllm, option.vllm_python), device=option.vllm_device, create=True)


@pytest.fixture(scope="session")
def launch(environment: Environment) -> Callable[..., Launch]:
    """Returns a function that plans a launch of the qwen3 stand-in; it can add flags and replace fields."""

    def plan(*args: str, env: dict[str, str] | None = None, **replaced: Any) -> Launch:
        entry = load_models().get("qwen3")
        planned = plan_launch(entry, environment, lane="scripted", args=args, env=env)
        return dataclasses.replace(planned, **replaced)

    return plan
