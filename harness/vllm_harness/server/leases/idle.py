"""What is idle (servers of this process, fork servers of nobody), given back before a wait for hardware."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

GiveBack = Callable[[], bool]
"""Ends an idle server or fork server; False where there is none."""

_offers: list[GiveBack] = []


@contextmanager
def offered(give_back: GiveBack) -> Iterator[None]:
    """Has each wait of this process call `give_back` first, as long as the context lasts."""
    _offers.append(give_back)
    try:
        yield
    finally:
        _offers.remove(give_back)


def give_back_idle_server() -> bool:
    """Ends an idle server of this process or a fork server of nobody; False where there is none."""
    return any(give_back() for give_back in list(_offers))
