"""Selects the tests to run: those confirmed on a real server or, in a short run, a random part of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.choice import Case, choose, few, seed_of_today, uncovered
from tests.left_out import LeftOut
from vllm_harness._server.records import run_folder
from vllm_harness._testing.session import TARGET, case_anywhere, is_for

UNSETTLED = Path(__file__).with_name("unsettled.txt")
LEFT_OUT = pytest.StashKey[LeftOut]()
DRAWN = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the command-line options for selecting tests."""
    parser.addoption("--unsettled", action="store_true", help="also run the tests listed in unsettled.txt")
    parser.addoption(
        "--dealt", metavar="MODEL", help="run this model's share of the tests that several models could run"
    )
    parser.addoption(
        "--most", type=int, default=0, help="with --dealt: the maximum number of cases per test; 0: all"
    )
    parser.addoption(
        "--seed", type=int, default=seed_of_today(), help="random seed of a short run; default: the date"
    )


def unsettled() -> set[str]:
    """Returns the tests (file::function) and test cases that no run on a real server has confirmed yet."""
    lines = UNSETTLED.read_text().splitlines()
    return {line.split("#")[0].strip() for line in lines} - {""}


def pytest_report_header(config: pytest.Config) -> str | None:
    """Reports the number of unsettled tests."""
    count = len(unsettled())
    if not count or config.option.unsettled:
        return None
    return f"not run: {count} unsettled tests (tests/unsettled.txt; --unsettled runs them)"


@pytest.hookimpl(hookwrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Deselects unsettled tests and, in a short run, tests that are not drawn; records them with reasons."""
    whole = config.getoption("vllm_slow", default=True)  # if the plugin is not loaded, nothing runs
    config.stash[DRAWN] = [] if whole else _draw(items, config.option.seed)
    behaviours = {name for item in items for name in covered_by(item)}
    of_targets = [item for item in items if TARGET in item.stash and _is_for_its_target(item)]
    yield
    unwanted = LeftOut(Counter(item.stash[TARGET].id for item in of_targets))
    selected = set(items)
    for item in of_targets:
        if item not in selected:
            unwanted.add(item.stash[TARGET].id, item.nodeid, "deselected")
    names = set() if config.option.unsettled else unsettled()
    _leave_out(
        items, [item for item in items if {item.nodeid, function_of(item)} & names], "unsettled", unwanted
    )
    if config.option.dealt:
        unwanted.uncovered = _choose(config, items, behaviours, unwanted)
    for item in items:
        if TARGET in item.stash and _is_skipped_as_slow(item):
            unwanted.add(item.stash[TARGET].id, item.nodeid, "slow (--vllm-slow)")
    config.stash[LEFT_OUT] = unwanted


def _draw(items: list[pytest.Item], seed: int) -> list[str]:
    """Draws some tests from each `drawn` group and marks the others as slow; returns a line per group."""
    groups: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if mark := item.get_closest_marker("drawn"):
            groups[mark.args].append(item)
    lines = []
    for (group, most), members in groups.items():
        every = {function_of(item) for item in members}
        drawn = few(every, most, seed)
        lines.append(f"{group}: {len(drawn)} of {len(every)} tests, drawn with --seed {seed}")
        for item in members:
            if function_of(item) not in drawn:
                item.add_marker("vllm_slow")
    return lines


def _choose(
    config: pytest.Config, items: list[pytest.Item], behaviours: set[str], unwanted: LeftOut
) -> list[str]:
    """Keeps this model's share of the chosen cases; returns the behaviours that no chosen case covers."""
    of_cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if TARGET in item.stash and not _is_skipped_as_slow(item):
            of_cases[case_anywhere(item)].append(item)
    cases = [_case(name, same) for name, same in of_cases.items()]
    chosen = choose(cases, config.option.most, config.option.seed)
    every = [item for same in of_cases.values() for item in same]
    ours = [item for item in every if _model(item) == config.option.dealt]
    drawn = [item for item in ours if case_anywhere(item) in chosen]
    elsewhere = [item for item in drawn if chosen[case_anywhere(item)] != config.option.dealt]
    _leave_out(items, [item for item in ours if case_anywhere(item) not in chosen], "not drawn", unwanted)
    _leave_out(items, elsewhere, "drawn for another model", unwanted)
    _leave_to_others(items, [item for item in every if _model(item) != config.option.dealt], unwanted)
    return uncovered(behaviours, cases, chosen)


def _leave_to_others(items: list[pytest.Item], theirs: list[pytest.Item], unwanted: LeftOut) -> None:
    """Deselects tests that another process runs and counts."""
    _leave_out(items, theirs, "another process's", unwanted)
    for target in {item.stash[TARGET].id for item in theirs}:
        unwanted.forget(target)


def _model(item: pytest.Item) -> str:
    return str(item.stash[TARGET].entry.name)


def _case(name: str, items: list[pytest.Item]) -> Case:
    return Case(name, function_of(items[0]), tuple(map(_model, items)), frozenset(covered_by(items[0])))


def _leave_out(items: list[pytest.Item], gone: list[pytest.Item], reason: str, unwanted: LeftOut) -> None:
    if not gone:
        return
    remaining = set(items) - set(gone)
    items[:] = [item for item in items if item in remaining]
    for item in gone:
        if TARGET in item.stash:
            unwanted.add(item.stash[TARGET].id, item.nodeid, reason)
    gone[0].config.hook.pytest_deselected(items=gone)


def function_of(item: pytest.Item) -> str:
    """Returns the node id of an item without its parameters."""
    return item.nodeid.split("[")[0]


def covered_by(item: pytest.Item) -> list[str]:
    """Returns the behaviours that an item covers."""
    return [name for mark in item.iter_markers("covers") for name in mark.args]


def _is_for_its_target(item: pytest.Item) -> bool:
    return is_for(item, item.stash[TARGET], item.stash[TARGET].lane)


def _is_skipped_as_slow(item: pytest.Item) -> bool:
    return not item.config.option.vllm_slow and item.get_closest_marker("vllm_slow") is not None


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Reports how much a run leaves out, and writes the full list to the run's folder."""
    unwanted = config.stash.get(LEFT_OUT, None)
    if unwanted is None:  # collection failed, for example because a path does not exist
        return []
    lines = [*config.stash[DRAWN], *unwanted.lines()]
    if lines and not config.option.collectonly:
        unwanted.write(run_folder() / "left-out.json")
    if config.option.dealt:
        lines.append(f"drawn with --seed {config.option.seed}")
    return lines
