"""How a target's tests are divided between forks and this process, and in which order they are reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from vllm_harness._testing.at_once import (
    CHUNK,
    OWN_CHUNK,
    WORTH,
    ReceivedReports,
    chunks,
    fork_plan,
    queues_of_forks,
)
from vllm_harness._testing.fork import ChunkQueue, ForkMessage

FIRST = 10
"""Number of the first test of those received."""


class Item:
    """A test, as far as it is looked at."""

    def __init__(self, module: str, servers: int, marks: tuple[str, ...]) -> None:
        self.path = Path(module)
        self.get_closest_marker = {
            "vllm_servers": pytest.mark.vllm_servers(servers),
            **dict.fromkeys(marks, True),
        }.get


def items(count: int, module: str = "a.py", servers: int = 1, *marks: str) -> list[Any]:
    """Tests of a module."""
    return [Item(module, servers, marks) for _ in range(count)]


def received(count: int) -> ReceivedReports:
    """Nothing of so many tests, whose names are their numbers."""
    names: list[Any] = [str(number) for number in range(count)]
    return ReceivedReports(ChunkQueue([names], FIRST))


def test_tests_are_divided_by_what_they_use() -> None:
    shared, own, alone = items(WORTH), items(2, "b.py", 2), items(1, "c.py", 1, "vllm_alone")
    divided = fork_plan([*shared[:5], *own, *alone, *shared[5:]])
    assert divided is not None
    assert divided.first is shared[0]
    assert [item for chunk in divided.shared for item in chunk] == shared[1:]
    assert (divided.own, divided.alone) == ([own], alone)


def test_a_test_with_its_own_server_can_be_alone() -> None:
    alone = items(1, "b.py", 2, "vllm_alone")
    divided = fork_plan([*items(WORTH), *alone])
    assert divided is not None
    assert (divided.own, divided.alone) == ([], alone)


def test_a_test_without_the_target_s_server_runs_here() -> None:
    without = items(1, "b.py", 0)
    divided = fork_plan([*items(WORTH), *without])
    assert divided is not None
    assert divided.own == [without]


def test_long_tests_begin_first_and_one_by_one() -> None:
    others, long = items(WORTH), items(2, "b.py", 1, "vllm_long")
    divided = fork_plan([*others, *long])
    assert divided is not None
    assert divided.shared == [long[:1], long[1:], *chunks(others[1:], CHUNK)]


def test_large_modules_with_own_servers_begin_first() -> None:
    small, large = items(1, "b.py", 2), items(2, "c.py", 2)
    divided = fork_plan([*items(WORTH), *small, *large])
    assert divided is not None
    assert divided.own == [large, small]


def test_few_tests_are_not_worth_a_fork() -> None:
    assert fork_plan([*items(WORTH - 1), *items(100, "b.py", 2)]) is None


def test_a_chunk_is_of_one_module_and_no_larger_than_it_may_be() -> None:
    first, second = items(CHUNK + 3, "a.py"), items(2, "b.py")
    assert list(chunks([*first, *second], CHUNK)) == [first[:CHUNK], first[CHUNK:], second]


def test_own_servers_are_not_kept_for_long() -> None:
    divided = fork_plan([*items(WORTH), *items(OWN_CHUNK + 1, "b.py", 2)])
    assert divided is not None
    assert [len(chunk) for chunk in divided.own] == [OWN_CHUNK, 1]


def test_every_fork_ends_with_what_others_have_left() -> None:
    """None of them idles while there are tests, wherever these have their servers from."""
    names: list[Any] = []
    own, shared = ChunkQueue(names), ChunkQueue(names)
    assert queues_of_forks(own, shared, 3) == [(own, shared), (shared, own), (shared, own)]
    assert queues_of_forks(own, shared, 1) == [(own, shared)]


def test_each_turn_is_taken_once() -> None:
    names: list[Any] = [["a", "b"], ["c"]]
    queue = ChunkQueue(names, FIRST)
    assert next(queue.taken()) == (FIRST, ["a", "b"])
    assert list(queue.taken()) == [(FIRST + 2, ["c"])]
    assert list(queue.taken()) == []


def fork_message(number: int, kind: Literal["begin", "end"]) -> ForkMessage:
    """What a fork says of one of the tests received."""
    return ForkMessage(FIRST + number, kind)


def test_reports_keep_the_order_of_collection() -> None:
    heard = received(3)
    for message in (fork_message(1, "begin"), fork_message(1, "end"), fork_message(0, "begin")):
        heard.take(message)
    assert list(heard.ready()) == []
    heard.take(fork_message(0, "end"))
    assert [(item, len(messages)) for item, messages in heard.ready()] == [("0", 2), ("1", 2)]
    assert list(heard.rest()) == [("2", [])]


def test_what_was_begun_and_not_ended_is_told_from_what_never_began() -> None:
    heard = received(3)
    heard.take(fork_message(1, "begin"))
    assert list(heard.ready()) == []
    assert list(heard.rest()) == [("0", []), ("1", [fork_message(1, "begin")]), ("2", [])]
    assert list(heard.rest()) == []


def test_what_this_process_has_run_is_not_reported_again() -> None:
    heard = received(3)
    heard.done.update({0, 2})
    for message in (
        ForkMessage(0, "end"),
        ForkMessage(FIRST + 3, "end"),
        fork_message(1, "begin"),
        fork_message(1, "end"),
    ):
        heard.take(message)
    assert [item for item, _ in heard.ready()] == ["1"]
    assert list(heard.rest()) == []
