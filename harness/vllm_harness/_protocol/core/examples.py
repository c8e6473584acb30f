"""Examples of rules as data: the name of a valid sample, and the edits that break it in one place."""

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
    """A sample, and what is done to it.

    Attributes:
        sample: name of the sample (`vllm_harness._protocol.samples`).
        edits: applied in order.
        request: the request it answers, where the rule needs one.
    """

    sample: str
    edits: tuple[Edit, ...] = ()
    request: Mapping[str, Any] | None = None


def edited(values: Sequence[Json], edits: Sequence[Edit]) -> list[Json]:
    """A deep copy with edits applied; sequence numbers follow again unless an edit is about them."""
    result = [copy.deepcopy(value) for value in values]
    for operation, *rest in edits:
        if operation != "replace":
            OPERATIONS[operation](result, *rest)
    about_numbers = any("sequence_number" in edit for edit in edits)
    if result and not about_numbers and all("sequence_number" in value for value in values):
        return numbered(result, values[0]["sequence_number"])
    return result


def locate(values: Sequence[Json], where: int | str) -> int:
    """Index of the event an edit is about.

    Raises:
        LookupError: there is none.
    """
    if isinstance(where, int):
        return range(len(values))[where]
    kind, _, number = where.partition("#")
    places = [index for index, value in enumerate(values) if value.get("type") == kind]
    return places[int(number or 0)]


def put(value: Any, path: str, leaf: object) -> None:
    """Sets a leaf; the path is dotted, numbers index lists (`item.content.0.text`)."""
    *parents, last = path.split(".")
    for key in parents:
        value = value[int(key)] if isinstance(value, list) else value[key]
    if isinstance(value, list):
        value[int(last)] = leaf
    else:
        value[last] = leaf


def take(value: Any, path: str) -> None:
    """Removes a leaf."""
    *parents, last = path.split(".")
    for key in parents:
        value = value[int(key)] if isinstance(value, list) else value[key]
    del value[int(last) if isinstance(value, list) else last]


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
    """Events as server-sent events: with `event:` lines for Responses and Messages, with [DONE] for chat."""
    lines = []
    for event in events:
        name = f"event: {event['type']}\n" if "type" in event else ""
        lines.append(f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n")
    end = "data: [DONE]\n\n" if events and "choices" in events[0] else ""
    return "".join(lines) + end
