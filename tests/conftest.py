"""What every test module shares."""

from __future__ import annotations

import dataclasses
import zlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.environments.resolve import resolve, spec_of
from harness.environments.spec import Environment
from harness.registry import load_registry
from harness.server.launch import Launch, plan_launch
from harness.suite.session import TARGET, case_anywhere

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
    parser.addoption(
        "--dealt", metavar="MODEL", help="of tests that several models could run, this one's share"
    )
    parser.addoption("--most", type=int, default=0, help="with --dealt: so many cases of one test; 0: all")


def unsettled() -> set[str]:
    """Tests, as file::function or one case of it, that were not yet seen to be right on a real server."""
    lines = UNSETTLED.read_text().splitlines()
    return {line.split("#")[0].strip() for line in lines} - {""}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is not settled or dealt to another model, which pytest counts as deselected."""
    names = set() if config.option.unsettled else unsettled()
    left_out = {item for item in items if {item.nodeid, item.nodeid.split("[")[0]} & names}
    if config.option.dealt:
        dealt = deal(thinned(items, config.option.most))
        left_out |= set(items) - dealt.get(config.option.dealt, set())
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))


def thinned(items: list[pytest.Item], most: int) -> list[pytest.Item]:
    """At most so many cases of each test, the same ones each time; 0: all."""
    cases: dict[str, set[str]] = defaultdict(set)
    for item in items:
        cases[item.nodeid.split("[")[0]].add(case_anywhere(item))
    kept = {case for some in cases.values() for case in sorted(some, key=told_by)[: most or None]}
    return [item for item in items if case_anywhere(item) in kept]


def told_by(case: str) -> int:
    """A number of a case's own, which stays the same."""
    return zlib.crc32(case.encode())


def deal(items: list[pytest.Item]) -> dict[str, set[pytest.Item]]:
    """Deals tests out to the models that could run them: each to one, told by the test's name."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        cases[case_anywhere(item)].append(item)
    hands: dict[str, set[pytest.Item]] = defaultdict(set)
    for case, of_models in cases.items():
        item = of_models[told_by(case) % len(of_models)]
        hands[item.stash[TARGET].entry.name].add(item)
    return hands


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
