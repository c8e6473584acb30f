"""How a target's tests are divided between forks and this process, and the order of their reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from vllm_harness._testing.fork import ChunkQueue, ForkMessage
from vllm_harness._testing.parallel import (
    CHUNK,
    MIN_SHARED,
    OWN_CHUNK,
    ReceivedReports,
    chunks,
    fork_plan,
    queues_of_forks,
)

FIRST = 10
"""The number of the first test in `received`."""


class Item:
    """A fake test, with the attributes that the division of tests uses."""

    def __init__(self, module: str, servers: int, marks: tuple[str, ...]) -> None:
        self.path = Path(module)
        self.get_closest_marker = {
            "vllm_servers": pytest.mark.vllm_servers(servers),
            **dict.fromkeys(marks, True),
        }.get


def items(count: int, module: str = "a.py", servers: int = 1, *marks: str) -> list[Any]:
    """Fake tests in one module."""
    return [Item(module, servers, marks) for _ in range(count)]


def received(count: int) -> ReceivedReports:
    """The reports about `count` tests, whose names are their numbers, before the first report."""
    names: list[Any] = [str(number) for number in range(count)]
    return ReceivedReports(ChunkQueue([names], FIRST))


def test_tests_are_plan_by_their_servers() -> None:
    shared, own, alone = items(MIN_SHARED), items(2, "b.py", 2), items(1, "c.py", 1, "vllm_alone")
    plan = fork_plan([*shared[:5], *own, *alone, *shared[5:]])
    assert plan is not None
    assert plan.first is shared[0]
    assert [item for chunk in plan.shared for item in chunk] == shared[1:]
    assert (plan.own, plan.alone) == ([own], alone)


def test_a_test_with_its_own_server_can_be_alone() -> None:
    alone = items(1, "b.py", 2, "vllm_alone")
    plan = fork_plan([*items(MIN_SHARED), *alone])
    assert plan is not None
    assert (plan.own, plan.alone) == ([], alone)


def test_a_test_without_a_server_is_not_shared() -> None:
    without = items(1, "b.py", 0)
    plan = fork_plan([*items(MIN_SHARED), *without])
    assert plan is not None
    assert plan.own == [without]


def test_long_tests_start_first_and_one_by_one() -> None:
    others, long = items(MIN_SHARED), items(2, "b.py", 1, "vllm_long")
    plan = fork_plan([*others, *long])
    assert plan is not None
    assert plan.shared == [long[:1], long[1:], *chunks(others[1:], CHUNK)]


def test_large_modules_with_further_servers_start_first() -> None:
    small, large = items(1, "b.py", 2), items(2, "c.py", 2)
    plan = fork_plan([*items(MIN_SHARED), *small, *large])
    assert plan is not None
    assert plan.own == [large, small]


def test_few_tests_are_not_forked() -> None:
    assert fork_plan([*items(MIN_SHARED - 1), *items(100, "b.py", 2)]) is None


def test_a_chunk_has_one_module_and_a_limited_size() -> None:
    first, second = items(CHUNK + 3, "a.py"), items(2, "b.py")
    assert list(chunks([*first, *second], CHUNK)) == [first[:CHUNK], first[CHUNK:], second]


def test_chunks_with_further_servers_have_a_limit() -> None:
    plan = fork_plan([*items(MIN_SHARED), *items(OWN_CHUNK + 1, "b.py", 2)])
    assert plan is not None
    assert [len(chunk) for chunk in plan.own] == [OWN_CHUNK, 1]


def test_every_fork_takes_from_both_queues() -> None:
    """No fork is idle while there are tests left in either queue."""
    names: list[Any] = []
    own, shared = ChunkQueue(names), ChunkQueue(names)
    assert queues_of_forks(own, shared, 3) == [(own, shared), (shared, own), (shared, own)]
    assert queues_of_forks(own, shared, 1) == [(own, shared)]


def test_each_chunk_is_taken_once() -> None:
    names: list[Any] = [["a", "b"], ["c"]]
    queue = ChunkQueue(names, FIRST)
    assert next(queue.take()) == (FIRST, ["a", "b"])
    assert list(queue.take()) == [(FIRST + 2, ["c"])]
    assert list(queue.take()) == []


def fork_message(number: int, kind: Literal["begin", "end"]) -> ForkMessage:
    """A fork's message about one of the tests that `received` returns."""
    return ForkMessage(FIRST + number, kind)


def test_reports_keep_the_order_of_collection() -> None:
    reports = received(3)
    for message in (fork_message(1, "begin"), fork_message(1, "end"), fork_message(0, "begin")):
        reports.add(message)
    assert list(reports.ready()) == []
    reports.add(fork_message(0, "end"))
    assert [(item, len(messages)) for item, messages in reports.ready()] == [("0", 2), ("1", 2)]
    assert list(reports.rest()) == [("2", [])]


def test_a_test_that_did_not_end_differs_from_one_that_never_started() -> None:
    reports = received(3)
    reports.add(fork_message(1, "begin"))
    assert list(reports.ready()) == []
    assert list(reports.rest()) == [("0", []), ("1", [fork_message(1, "begin")]), ("2", [])]
    assert list(reports.rest()) == []


def test_tests_of_this_process_are_not_reported_again() -> None:
    reports = received(3)
    reports.done.update({0, 2})
    for message in (
        ForkMessage(0, "end"),
        ForkMessage(FIRST + 3, "end"),
        fork_message(1, "begin"),
        fork_message(1, "end"),
    ):
        reports.add(message)
    assert [item for item, _ in reports.ready()] == ["1"]
    assert list(reports.rest()) == []
