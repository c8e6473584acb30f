"""What a load does is drawn by its seed alone."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from vllm_harness._errors import UsageError
from vllm_harness._scenarios.running import transports_of
from vllm_harness.extras.load.plan import LEFT_BY, LoadShare, Plan, parts_of

STREAMED = transports_of((), (True,))


def plan(**more: Any) -> Plan:
    return Plan(STREAMED, **{"requests": 10, **more})


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"requests": None}, "duration"),
        ({"requests": 0}, "requests is 0"),
        ({"concurrency": -1}, "concurrency is -1"),
        ({"rate": 0.0}, "rate is 0"),
        ({"cancel": 1.5}, "cancel is 1.5"),
    ],
)
def test_a_plan_without_sense_is_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(**wrong)
    assert told in f"{caught.value}"


def test_conversations_are_whole() -> None:
    assert [plan(requests=number).conversations(3) for number in (1, 3, 4, 10)] == [1, 1, 2, 4]
    assert plan(requests=None, duration_s=1.0).conversations(3) is None


def test_how_many_at_once() -> None:
    assert [plan(**more).at_once for more in ({}, {"rate": 2.0}, {"rate": 2.0, "concurrency": 5})] == [
        1,
        None,
        5,
    ]


def test_transports_are_dealt() -> None:
    dealt = [plan().transport(number).name for number in range(5)]
    assert dealt == ["responses", "responses-history", "chat", "messages", "responses"]


def test_conversations_begin_at_drawn_times() -> None:
    assert list(islice(plan().begins(), 3)) == [0.0, 0.0, 0.0]
    times = list(islice(plan(rate=10.0).begins(), 2000))
    assert times == sorted(times) == list(islice(plan(rate=10.0).begins(), 2000))
    assert times != list(islice(plan(rate=10.0, seed=1).begins(), 2000))
    assert 180 < times[-1] < 220


def test_a_share_of_the_streams_is_left() -> None:
    def drawn(**more: Any) -> list[int | None]:
        return [plan(cancel=0.1, **more).leaves_after(number, "ask") for number in range(2000)]

    left = [events for events in drawn() if events is not None]
    assert 150 < len(left) < 250
    assert set(left) == set(range(LEFT_BY))
    assert drawn() == drawn() != drawn(seed=1)
    assert plan().leaves_after(0, "ask") is None


def test_the_parts_of_a_load_are_the_whole_at_its_times() -> None:
    whole = plan(requests=300, concurrency=10, rate=5.0)
    parts = parts_of(whole, 3, 4)
    held = [list(part.begins(whole, 3)) for part in parts]
    assert sorted(each for of_part in held for each in of_part) == list(
        enumerate(islice(whole.begins(), 100))
    )
    assert [len(of_part) for of_part in held] == [25, 25, 25, 25]
    assert [part.at_once(whole) for part in parts] == [3, 3, 2, 2]
    assert LoadShare().at_once(plan(rate=5.0)) is None


def test_a_load_without_an_end_has_parts_without_one() -> None:
    endless = plan(requests=None, duration_s=1.0, concurrency=2)
    assert [number for number, _ in islice(LoadShare(1, 2).begins(endless, 3), 3)] == [1, 3, 5]


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        ({"requests": 300, "concurrency": 2}, 2),
        ({"requests": 9, "concurrency": 8}, 3),
        ({}, 1),
        ({"rate": 9.0}, 4),
    ],
)
def test_there_is_no_part_without_a_conversation(more: dict[str, Any], parts: int) -> None:
    assert len(parts_of(plan(**more), 3, 8)) == parts
