"""The differences between two JSON values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from vllm_harness._protocol.core.findings import ABSENT


class Difference(NamedTuple):
    """Two values that differ at a JSON path; `ABSENT` stands for a missing value."""

    path: str
    left: object
    right: object


def differences(
    left: Any, right: Any, *, ignore: Collection[str] = (), path: str = "$"
) -> Iterator[Difference]:
    """Yields the differences between two JSON values, leaf by leaf.

    Args:
        left: one value.
        right: the other value.
        ignore: keys that are ignored at every depth.
        path: the JSON path of the two values.
    """
    if type(left) is dict and type(right) is dict:
        for key in {**left, **right}:
            if key not in ignore:
                yield from differences(
                    left.get(key, ABSENT), right.get(key, ABSENT), ignore=ignore, path=f"{path}.{key}"
                )
    elif type(left) is list and type(right) is list:
        for number in range(max(len(left), len(right))):
            yield from differences(
                left[number] if number < len(left) else ABSENT,
                right[number] if number < len(right) else ABSENT,
                ignore=ignore,
                path=f"{path}[{number}]",
            )
    elif left != right or isinstance(left, bool) != isinstance(right, bool):
        yield Difference(path, left, right)


def common_length(left: Sequence[object], right: Sequence[object]) -> int:
    """The length of the common prefix of two strings or lists."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(left), len(right)))
