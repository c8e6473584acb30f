"""Tasks side by side: their errors, and what ends them."""

from __future__ import annotations

import pytest

from vllm_harness.errors import HarnessError
from vllm_harness.server.leases.side_by_side import side_by_side


def test_the_errors_of_the_harness_are_returned_and_the_others_run() -> None:
    done: list[int] = []

    def fail() -> None:
        raise HarnessError("no memory")

    errors = side_by_side([fail, lambda: done.append(1), fail, lambda: done.append(2)], 2)
    assert [error.message for error in errors] == ["no memory", "no memory"]
    assert sorted(done) == [1, 2]


def test_an_interrupt_leaves_out_what_has_not_begun() -> None:
    begun: list[int] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        side_by_side([interrupt, *[lambda: begun.append(1)] * 1000], 1)
    assert not begun
