"""The plan of a load test depends only on its options and seed."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from vllm_harness._errors import UsageError
from vllm_harness._scenarios.running import transports_of
from vllm_harness.extras.load.plan import LEFT_BY, LoadShare, Plan, shares_of

STREAMED = transports_of((), (True,))


def plan(**more: Any) -> Plan:
    return Plan(STREAMED, **{"requests": 10, **more})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"requests": None}, "duration"),
        ({"requests": 0}, "requests is 0"),
        ({"concurrency": -1}, "concurrency is -1"),
        ({"rate": 0.0}, "rate is 0"),
        ({"cancel": 1.5}, "cancel is 1.5"),
    ],
)
def test_invalid_plan(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(**settings)
    assert message in f"{caught.value}"


def test_conversations_are_whole() -> None:
    assert [plan(requests=number).conversations(3) for number in (1, 3, 4, 10)] == [1, 1, 2, 4]
    assert plan(requests=None, duration_s=1.0).conversations(3) is None


def test_how_many_at_once() -> None:
    assert [plan(**more).at_once for more in ({}, {"rate": 2.0}, {"rate": 2.0, "concurrency": 5})] == [
        1,
        None,
        5,
    ]


def test_transports_take_turns() -> None:
    dealt = [plan().transport(number).name for number in range(5)]
    assert dealt == ["responses", "responses-history", "chat", "messages", "responses"]


def test_random_start_times() -> None:
    assert list(islice(plan().starts(), 3)) == [0.0, 0.0, 0.0]
    times = list(islice(plan(rate=10.0).starts(), 2000))
    assert times == sorted(times) == list(islice(plan(rate=10.0).starts(), 2000))
    assert times != list(islice(plan(rate=10.0, seed=1).starts(), 2000))
    assert 180 < times[-1] < 220


def test_the_client_leaves_a_share_of_the_streams() -> None:
    def drawn(**more: Any) -> list[int | None]:
        return [plan(cancel=0.1, **more).leaves_after(number, "ask") for number in range(2000)]

    left = [events for events in drawn() if events is not None]
    assert 150 < len(left) < 250
    assert set(left) == set(range(LEFT_BY))
    assert drawn() == drawn() != drawn(seed=1)
    assert plan().leaves_after(0, "ask") is None


def test_shares_add_up_to_the_whole_load() -> None:
    whole = plan(requests=300, concurrency=10, rate=5.0)
    shares = shares_of(whole, 3, 4)
    starts = [list(share.starts(whole, 3)) for share in shares]
    assert sorted(start for of_share in starts for start in of_share) == list(
        enumerate(islice(whole.starts(), 100))
    )
    assert [len(of_share) for of_share in starts] == [25, 25, 25, 25]
    assert [share.at_once(whole) for share in shares] == [3, 3, 2, 2]
    assert LoadShare().at_once(plan(rate=5.0)) is None


def test_share_of_an_endless_load() -> None:
    endless = plan(requests=None, duration_s=1.0, concurrency=2)
    assert [number for number, _ in islice(LoadShare(1, 2).starts(endless, 3), 3)] == [1, 3, 5]


@pytest.mark.parametrize(
    ("more", "shares"),
    [
        ({"requests": 300, "concurrency": 2}, 2),
        ({"requests": 9, "concurrency": 8}, 3),
        ({}, 1),
        ({"rate": 9.0}, 4),
    ],
)
def test_no_share_without_a_conversation(more: dict[str, Any], shares: int) -> None:
    assert len(shares_of(plan(**more), 3, 8)) == shares
