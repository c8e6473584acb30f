"""Servers of this process that no test uses now: given back before the process waits for another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

GiveBack = Callable[[], bool]
"""Ends one idle server; False where there is none."""

_offers: list[GiveBack] = []


@contextmanager
def offered(give_back: GiveBack) -> Iterator[None]:
    """While it lasts, whoever in this process would have to wait takes the offer first."""
    _offers.append(give_back)
    try:
        yield
    finally:
        _offers.remove(give_back)


def give_back_idle_server() -> bool:
    """Ends one idle server of this process; False where there is none."""
    return any(give_back() for give_back in list(_offers))
