"""Examples of rules as data: the name of a valid sample, and the edits that break it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_harness._protocol.core.events import Json, numbered

# ("set", where, path, value) · ("unset", where, path) · ("drop", where) · ("dup", where)
# ("move", where, before) · ("insert", before, value) · ("append", value) · ("replace", old, new) for text
# where: a number, an event type, or "type#n" for its n-th occurrence
Edit = tuple[Any, ...]


@dataclass(frozen=True)
class Example:
    """A sample and the edits to apply to it.

    Attributes:
        sample: the name of the sample (`vllm_harness._protocol.samples`).
        edits: the edits, in the order in which they are applied.
        request: the request that the sample answers, if the rule needs one.
    """

    sample: str
    edits: tuple[Edit, ...] = ()
    request: Mapping[str, Any] | None = None


def edited(values: Sequence[Json], edits: Sequence[Edit]) -> list[Json]:
    """Deep copies with the edits applied, renumbered unless an edit changes sequence numbers."""
    result = [copy.deepcopy(value) for value in values]
    for operation, *rest in edits:
        if operation != "replace":
            OPERATIONS[operation](result, *rest)
    sets_numbers = any("sequence_number" in edit for edit in edits)
    if result and not sets_numbers and all("sequence_number" in value for value in values):
        return numbered(result, values[0]["sequence_number"])
    return result


def locate(values: Sequence[Json], where: int | str) -> int:
    """The index of the event that an edit names.

    Raises:
        LookupError: there is no such event.
    """
    if isinstance(where, int):
        return range(len(values))[where]
    kind, _, number = where.partition("#")
    places = [index for index, value in enumerate(values) if value.get("type") == kind]
    return places[int(number or 0)]


def put(value: Any, path: str, leaf: object) -> None:
    """Sets the leaf at a dotted path, in which numbers index lists (`item.content.0.text`)."""
    parent, key = _parent(value, path)
    parent[key] = leaf


def take(value: Any, path: str) -> None:
    """Removes the leaf at a dotted path."""
    parent, key = _parent(value, path)
    del parent[key]


def _parent(value: Any, path: str) -> tuple[Any, Any]:
    """The container of a leaf, and the key or index of the leaf in it."""
    *parents, last = path.split(".")
    for key in parents:
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value, int(last) if isinstance(value, list) else last


def _move(values: list[Json], where: int | str, before: int | str) -> None:
    value = values.pop(locate(values, where))
    values.insert(locate(values, before), value)


OPERATIONS: dict[str, Callable[..., None]] = {
    "set": lambda values, where, path, leaf: put(values[locate(values, where)], path, copy.deepcopy(leaf)),
    "unset": lambda values, where, path: take(values[locate(values, where)], path),
    "drop": lambda values, where: values.pop(locate(values, where)),
    "dup": lambda values, where: values.insert(
        locate(values, where), copy.deepcopy(values[locate(values, where)])
    ),
    "move": _move,
    "insert": lambda values, before, value: values.insert(locate(values, before), copy.deepcopy(value)),
    "append": lambda values, value: values.append(copy.deepcopy(value)),
}


def as_sse(events: Sequence[Json]) -> str:
    """Events as server-sent events, with `event:` lines (Responses, Messages) or with [DONE] (chat)."""
    lines = []
    for event in events:
        name = f"event: {event['type']}\n" if "type" in event else ""
        lines.append(f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n")
    end = "data: [DONE]\n\n" if events and "choices" in events[0] else ""
    return "".join(lines) + end
