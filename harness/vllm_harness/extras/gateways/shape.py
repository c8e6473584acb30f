"""The shape of an answer: its fields with their values, and the order of its events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vllm_harness._protocol.core.events import Json
from vllm_harness.extras.gateways.answers import DONE, SideExchange

Fields = dict[str, list[object]]
"""The values of each field, by its JSON path; `[*]` stands for any list index."""

TEXTS = frozenset(
    {
        *("content", "text", "delta", "refusal", "reasoning", "reasoning_content", "thinking", "arguments"),
        *("partial_json", "input", "signature"),
    }
)
"""Fields that hold what the model said, whole or in pieces."""


def fields_of(exchange: SideExchange) -> dict[str, Fields]:
    """The fields of each type of event, by type; those of a body are under the empty string."""
    by_kind: dict[str, Fields] = {}
    for value in exchange.json_events if exchange.streamed else (exchange.body or {},):
        kind = str(value.get("type", "")) if exchange.streamed else ""
        fields = by_kind.setdefault(kind, {})
        for path, leaf in _leaves(value, "$"):
            fields.setdefault(path, []).append(leaf)
    return by_kind


def _leaves(value: Any, path: str) -> Iterator[tuple[str, object]]:
    """The values other than null, objects and lists; an empty object or list counts as a value."""
    if isinstance(value, dict) and value:
        for key, member in value.items():
            yield from _leaves(member, f"{path}.{key}")
    elif isinstance(value, list) and value:
        for item in value:
            yield from _leaves(item, f"{path}[*]")
    elif value is not None:
        yield path, value


def key_of(path: str) -> str:
    """The last name of a path."""
    return path.rpartition(".")[2].replace("[*]", "")


def parent_of(path: str) -> str:
    """The path of the object that a field is in."""
    return path.rpartition(".")[0]


def kinds_in_order(exchange: SideExchange) -> list[str]:
    """The kinds of events in a stream, in the order in which each first comes.

    A chunk of Chat Completions counts as the parts that it carries, since it is left to chance which tokens
    a chunk holds.
    """
    kinds: dict[str, None] = {}
    for frame, value in _with_values(exchange):
        if frame == DONE:
            kinds.setdefault(DONE)
        elif value is not None:
            kinds.update(dict.fromkeys(_of_chunk(value) if exchange.api == "chat" else [_kind(value)]))
    return list(kinds)


def _with_values(exchange: SideExchange) -> Iterator[tuple[str, Json | None]]:
    values = iter(exchange.json_events)
    for frame in exchange.frames:
        mark = frame.data.strip()
        yield mark, None if mark == DONE else next(values, None)


def _kind(value: Json) -> str:
    place = value.get("output_index", value.get("index"))
    inner = value.get("delta") if isinstance(value.get("delta"), dict) else value.get("content_block")
    kind = inner.get("type") if isinstance(inner, dict) else None
    parts = (value.get("type"), kind, None if place is None else f"of {place}")
    return " ".join(str(part) for part in parts if part is not None)


def _of_chunk(value: Json) -> Iterator[str]:
    if "error" in value:
        yield "error"
    for choice in value.get("choices") or ():
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if isinstance(delta, dict):
            yield from _of_delta(delta, f"choice {choice.get('index')}")
        if isinstance(choice, dict) and choice.get("finish_reason"):
            yield f"choice {choice.get('index')} finish"
    if value.get("usage") and not value.get("choices"):
        yield "usage"


def _of_delta(delta: Mapping[str, Any], place: str) -> Iterator[str]:
    for name in ("reasoning", "content"):
        if any(delta.get(key) for key in (name, f"{name}_content")):
            yield f"{place} {name}"
    for call in delta.get("tool_calls") or ():
        if isinstance(call, dict):
            yield f"{place} call {call.get('index')}"


def type_of(kind: str) -> str:
    """The type of event that a kind belongs to."""
    return kind.partition(" of ")[0]


def by_choice(kinds: Iterable[str]) -> dict[str, list[str]]:
    """The kinds of each choice, with those of no choice; how choices alternate is left to chance."""
    every = list(kinds)
    choices = dict.fromkeys(filter(None, map(_choice_of, every))) or {"": None}
    return {choice: [kind for kind in every if _choice_of(kind) in ("", choice)] for choice in choices}


def _choice_of(kind: str) -> str:
    word, _, rest = kind.partition(" ")
    return rest.partition(" ")[0] if word == "choice" else ""


def ids_of(exchange: SideExchange) -> dict[str, set[str]]:
    """The ids that a stream gives each response, item or call, by a description of the object."""
    ids: dict[str, set[str]] = {}
    for value in exchange.json_events:
        for thing, id_ in _ids(exchange, value):
            if isinstance(id_, str) and id_:
                ids.setdefault(thing, set()).add(id_)
    return ids


def _ids(exchange: SideExchange, value: Json) -> Iterator[tuple[str, object]]:
    if exchange.api == "chat":
        yield "the completion", value.get("id")
        for choice in value.get("choices") or ():
            delta = choice.get("delta") if isinstance(choice, dict) else None
            for call in (delta.get("tool_calls") if isinstance(delta, dict) else None) or ():
                if isinstance(call, dict):
                    yield f"choice {choice.get('index')}, call {call.get('index')}", call.get("id")
        return
    response, place = value.get("response"), value.get("output_index")
    if isinstance(response, dict):
        yield "the response", response.get("id")
        for number, item in enumerate(response.get("output") or ()):
            yield from _of_item(number, item)
    if isinstance(place, int):
        yield f"item {place}", value.get("item_id")
        yield from _of_item(place, value.get("item"))


def _of_item(place: int, item: Any) -> Iterator[tuple[str, object]]:
    if isinstance(item, dict):
        yield f"item {place}", item.get("id")
        yield f"the call of item {place}", item.get("call_id")
