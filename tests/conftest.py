"""What every test module shares."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.environments.resolve import resolve, spec_of
from harness.environments.spec import Environment
from harness.registry import load_registry
from harness.server.launch import Launch, plan_launch

UNSETTLED = Path(__file__).with_name("unsettled.txt")

pytest.register_assert_rewrite(
    "tests.behaviours", "tests.chat_api", "tests.messages_api", "tests.responses_api"
)
pytest_plugins = [
    "pytester",
    "tests.chat_api",
    "tests.messages_api",
    "tests.own_server",
    "tests.responses_api",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of this project's own tests."""
    parser.addoption("--kills", type=int, default=20, help="how often the kill -9 test kills an owner")
    parser.addoption("--unsettled", action="store_true", help="run the tests of unsettled.txt as well")


def unsettled() -> set[str]:
    """Tests, as file::function or one case of it, that were not yet seen to be right on a real server."""
    lines = UNSETTLED.read_text().splitlines()
    return {line.split("#")[0].strip() for line in lines} - {""}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is not settled, which pytest counts as deselected."""
    if config.option.unsettled:
        return
    names = unsettled()
    left_out = [item for item in items if {item.nodeid, item.nodeid.split("[")[0]} & names]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Says how many tests are not settled."""
    count = len(unsettled())
    if not count or config.option.unsettled:
        return None
    return f"not run: {count} unsettled tests (tests/unsettled.txt; --unsettled runs them)"


@pytest.fixture(scope="session")
def environment(request: pytest.FixtureRequest) -> Environment:
    """The server environment of this run."""
    option = request.config.option
    return resolve(spec_of(option.vllm, option.vllm_python), device=option.device, create=True)


@pytest.fixture(scope="session")
def launch(environment: Environment) -> Callable[..., Launch]:
    """Plans the qwen3 stand-in, with flags and variables added and fields replaced."""

    def plan(*args: str, env: dict[str, str] | None = None, **replaced: Any) -> Launch:
        entry = load_registry().get("qwen3")
        planned = plan_launch(entry, environment, lane="scripted", args=args, env=env)
        return dataclasses.replace(planned, **replaced)

    return plan
