"""Which target of one run is which of another: their versions or front ends may be what differs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from vllm_harness._runs.records import TargetRecord

_KEYS: tuple[Callable[[TargetRecord], Hashable], ...] = (
    lambda target: target.id,
    lambda target: (target.title, target.family, target.lane, target.vllm, target.frontend),
    lambda target: (target.title, target.family, target.lane, target.frontend),
    lambda target: (target.title, target.family, target.lane),
)


def pairs(before: Sequence[TargetRecord], now: Sequence[TargetRecord]) -> dict[str, str]:
    """The ids of targets of `now` and the ids of those that they are compared with.

    The nearest come together first: same id; same model, lane, version and front end; then without the
    version, then without the front end. Where each run has one target, these two. None has two partners.
    """
    found: dict[str, str] = {}
    for key in _KEYS:
        left: dict[Hashable, list[str]] = {}
        for target in before:
            if target.id not in found.values():
                left.setdefault(key(target), []).append(target.id)
        for target in now:
            if target.id not in found and left.get(key(target)):
                found[target.id] = left[key(target)].pop(0)
    if not found and len(before) == len(now) == 1:
        return {now[0].id: before[0].id}
    return found
