"""Pairs the targets of two runs, which may differ in version or front end."""

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
    """Pairs targets of `now` with targets of `before`; returns the ids of `before` by those of `now`.

    The closest pairs come first: the same id; the same model, lane, version and front end; then without the
    version, then without the front end. If each run has one target, they are a pair. No target has two
    partners.
    """
    partners: dict[str, str] = {}
    for key in _KEYS:
        left: dict[Hashable, list[str]] = {}
        for target in before:
            if target.id not in partners.values():
                left.setdefault(key(target), []).append(target.id)
        for target in now:
            if target.id not in partners and left.get(key(target)):
                partners[target.id] = left[key(target)].pop(0)
    if not partners and len(before) == len(now) == 1:
        return {now[0].id: before[0].id}
    return partners
