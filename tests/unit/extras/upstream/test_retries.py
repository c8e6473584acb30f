"""Retries by upstream's helpers are counted, and its clients work as before."""

from __future__ import annotations

import asyncio
import types
from types import SimpleNamespace

from vllm_harness.extras.upstream.retries import count_retries


async def _create(**wanted: int) -> int:
    return wanted["number"]


async def _asks_until_two(client: SimpleNamespace, *, numbers: list[int]) -> int:
    answer = 0
    for number in numbers:
        answer = await client.responses.create(number=number)
        if answer == 2:
            break
    return answer


def test_each_further_request_of_a_helper_is_a_retry() -> None:
    module = types.ModuleType("test_x")
    module.retry_for = _asks_until_two  # type: ignore[attr-defined]
    module.helper = _asks_until_two  # type: ignore[attr-defined]
    counted: list[int] = []
    count_retries(module, counted.append)
    count_retries(module, counted.append)  # a second test of the same module
    client = SimpleNamespace(responses=SimpleNamespace(create=_create))
    for numbers, expected in (([2], 0), ([1, 2, 3], 1), ([1, 1, 1], 2)):
        counted.clear()
        assert (
            asyncio.run(module.retry_for(client, numbers=numbers)) == numbers[min(expected, len(numbers) - 1)]
        )
        assert counted == [expected]
    assert module.helper is _asks_until_two
