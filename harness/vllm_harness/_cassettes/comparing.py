"""Compares two cassettes turn by turn, in meaning and in protocol."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby, zip_longest
from typing import Any, Literal

from vllm_harness._cassettes.answers import answer_of, exchange_of
from vllm_harness._cassettes.format import Cassette, RecordedExchange
from vllm_harness._protocol.conversation.compare import OF_ONE_ANSWER
from vllm_harness._protocol.core.differences import differences
from vllm_harness._protocol.core.events import REASONING_KEYS
from vllm_harness._protocol.core.findings import ABSENT, brief

Layer = Literal["turn", "meaning", "protocol", "request"]
_ID = re.compile(r"((?:[A-Za-z]{2,12}[_-])+)[A-Za-z0-9_-]{6,}")
_KEY_OF_ID = re.compile(r"(?:^|_)id$")
_PLACES = frozenset(
    {"sequence_number", "output_index", "content_index", "summary_index", "index", "obfuscation"}
)
_WORDS = frozenset(
    {
        *(
            "text",
            "delta",
            "arguments",
            "content",
            "thinking",
            "partial_json",
            "reasoning",
            "reasoning_content",
        ),
        *("refusal", "input", "signature", "encrypted_content", "instructions", "description"),
    }
)
"""Keys whose values are words of the model or the request, which are compared by meaning instead."""
_OF_THE_REQUEST = frozenset({"tools", "metadata"})
"""Keys that repeat a value from the request; the fields inside that value are not compared."""
_TOKENS = re.compile(r"tokens?(?:_per_turn)?$")
_BEFORE_WORDS = ("role", *REASONING_KEYS)
"""The keys of a delta that are listed before all others, whatever their order in the delta."""
_SHOWN = 6
Pair = tuple[str, RecordedExchange | None, RecordedExchange | None]
_EVENT = "event "
_CHUNK = f"{_EVENT}chat.completion.chunk"


@dataclass(frozen=True)
class TurnDifference:
    """A difference between two turns.

    Attributes:
        turn: the name of the turn.
        layer: `request`, `meaning` or `protocol`; `turn` if one cassette lacks the turn.
        place: the field that differs, such as `calls[0].name` or `function_call.status`.
        left, right: the values in the left and the right cassette, as text.
    """

    turn: str
    layer: Layer
    place: str
    left: str
    right: str


def compare(left: Cassette, right: Cassette) -> list[TurnDifference]:
    """Lists the differences between two cassettes, in the order of their turns.

    Turns are paired by name, or by order if the cassettes share no name. Ids, times and other values that
    differ between any two answers are compared only by form: `call_…`, or "a number".
    """
    differing: list[TurnDifference] = []
    for name, one, other in paired(left, right):
        if one is None or other is None:
            sides = ("nothing", "a turn") if one is None else ("a turn", "nothing")
            differing.append(TurnDifference(name, "turn", "", *sides))
        else:
            differing += compared(name, one, other)
    return differing


def without_words(differing: Sequence[TurnDifference]) -> list[TurnDifference]:
    """Drops the differences in wording and token counts, which vary if the model is not scripted."""
    return [difference for difference in differing if not _of_words(difference)]


def _of_words(difference: TurnDifference) -> bool:
    place = difference.place
    if difference.layer == "meaning":
        return not (place == "status" or place.endswith((".name", "]")))
    return difference.layer == "protocol" and _TOKENS.search(place) is not None


def paired(left: Cassette, right: Cassette) -> Iterator[Pair]:
    """Pairs the turns of two cassettes; yields each pair's name (the left turn's, if any) and both turns."""
    lefts, rights = left.exchanges, right.exchanges
    if not {each.turn for each in lefts} & {each.turn for each in rights}:
        for one, other in zip_longest(lefts, rights):
            yield (one or other).turn, one, other
        return
    by_name = {each.turn: each for each in rights}
    for one in lefts:
        yield one.turn, one, by_name.pop(one.turn, None)
    for name, other in by_name.items():
        yield name, None, other


def compared(turn: str, left: RecordedExchange, right: RecordedExchange) -> list[TurnDifference]:
    """Lists the differences between two exchanges in meaning and in protocol."""
    differing = [*_meanings(turn, left, right)]
    first, second = facts(left), facts(right)
    only_in_one = set(_events_of(first)) ^ set(_events_of(second))  # `_orders` reports these
    for place in {**first, **second}:
        sides = first.get(place, ()), second.get(place, ())
        if sides[0] != sides[1] and _event_of(place) not in only_in_one:
            differing.append(TurnDifference(turn, "protocol", place, *map(_listed, sides)))
    return [*differing, *_orders(turn, left, right)]


def _event_of(place: str) -> str:
    """The type of the events that a field belongs to; empty if it does not belong to events."""
    return place.partition(": ")[0] if place.startswith(_EVENT) else ""


def _events_of(places: Iterable[str]) -> Iterator[str]:
    return filter(None, map(_event_of, places))


def _meanings(turn: str, left: RecordedExchange, right: RecordedExchange) -> Iterator[TurnDifference]:
    first, second = answer_of(left), answer_of(right)
    if first is None or second is None:
        return
    for each in differences(first.meaning(), second.meaning()):
        place = each.path.removeprefix("$.")
        yield TurnDifference(turn, "meaning", place, brief(each.left), brief(each.right))


def facts(exchange: RecordedExchange) -> dict[str, tuple[str, ...]]:
    """Collects the values in an answer by object type and field, without the model's words.

    Returns:
        Fields such as `function_call.status` or `event response.completed: sequence_number`, each with its
        distinct values in order.
    """
    response = exchange.response
    fields: dict[str, list[str]] = {"HTTP status": [str(response.status)]}
    kind = response.headers.get("content-type", "").partition(";")[0]
    fields["content-type"] = [kind or "nothing"]
    answered = exchange_of(exchange)
    body = answered.whole
    root = {"responses": "response", "chat": "completion", "messages": "message", None: "body"}[answered.api]
    if body is not None:
        _collect(body, str(body.get("object") or body.get("type") or root), "", fields)
    for event in answered.json_events:
        named = str(event.get("type") or event.get("object") or "event")
        own = {key: value for key, value in event.items() if key not in ("response", "type")}
        _collect(own, f"{_EVENT}{named}", ": ", fields, within_event=True)
    return {place: tuple(dict.fromkeys(values)) for place, values in fields.items()}


def _collect(
    value: Mapping[str, Any],
    kind: str,
    mark: str,
    fields: dict[str, list[str]],
    *,
    path: str = "",
    within_event: bool = False,
) -> None:
    in_pieces = kind.startswith(_CHUNK)
    for key, each in value.items():
        place = f"{path}.{key}" if path else key
        inner = each if isinstance(each, list) else [each]
        objects = [part for part in inner if isinstance(part, dict)]
        if key in _OF_THE_REQUEST or not objects:
            fields.setdefault(f"{kind}{mark or '.'}{place}", []).append(_form(key, each, in_pieces))
            continue
        if not isinstance(each, list):
            fields.setdefault(f"{kind}{mark or '.'}{place}", []).append("an object")
        for part in objects:
            named = part.get("type")
            # only the first chunk of a call has its type, and that chunk may contain the whole call
            if isinstance(named, str) and not in_pieces and not (key == "delta" and within_event):
                owner = f"{kind}: {named}" if within_event else named
                _collect(part, owner, "", fields)
            else:
                _collect(part, kind, mark, fields, path=place, within_event=within_event)


def _form(key: str, value: Any, in_pieces: bool) -> str:
    """Describes a value, by its form alone if it differs between any two answers.

    An empty text in a chunk counts as any other text, as a busy server merges an empty chunk with the next.
    """
    if isinstance(value, bool) or value is None:
        return brief(value)
    if isinstance(value, list) and (key in _OF_THE_REQUEST or len(value)):
        return "a list"
    if isinstance(value, (int, float)):
        return "a number" if key in OF_ONE_ANSWER or key in _PLACES else brief(value)
    if isinstance(value, str):
        if key in _WORDS or key in _PLACES:
            joined = in_pieces and key in _WORDS
            return "a text" if value or joined else '""'
        if _KEY_OF_ID.search(key):
            match = _ID.fullmatch(value)
            return f"{match[1]}…" if match else "a text"
        return brief(value)
    return brief(value)


def _listed(values: Sequence[str]) -> str:
    shown = [*values[:_SHOWN], *(["…"] if len(values) > _SHOWN else [])]
    return ", ".join(shown) or repr(ABSENT)


def _orders(turn: str, left: RecordedExchange, right: RecordedExchange) -> Iterator[TurnDifference]:
    """Finds differences in the order of events; consecutive equal events count as one."""
    first, second = order_of(left), order_of(right)
    if not first or not second or first == second:
        return
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind != "equal":
            before = first[a - 1] if a else "the beginning"
            yield TurnDifference(
                turn, "protocol", f"events after {before}", _chain(first[a:b]), _chain(second[c:d])
            )


def order_of(exchange: RecordedExchange) -> list[str]:
    """Lists the event types of a stream, choice by choice; consecutive equal types count once."""
    lines: dict[int, list[str]] = {}
    for event in exchange_of(exchange).json_events:
        kinds = [(0, str(event["type"]))] if event.get("type") else _of_chat(event)
        for choice, kind in kinds:
            lines.setdefault(choice, []).append(f"choice {choice}: {kind}" if choice else kind)
    return [kind for choice in sorted(lines) for kind, _ in groupby(lines[choice])]


def _of_chat(chunk: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Yields the index of a choice and what a Chat Completions chunk adds to that choice.

    A busy server merges chunks, and the order of keys in an object has no meaning, so reasoning is always
    listed before the text of the same delta.
    """
    choices = chunk.get("choices")
    valid = [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []
    if not valid:
        yield 0, "usage" if chunk.get("usage") else "chunk without choices"
    for choice in valid:
        index, delta = choice.get("index"), choice.get("delta")
        keys = [key for key, value in delta.items() if value] if isinstance(delta, dict) else []
        keys.sort(key=lambda key: key not in _BEFORE_WORDS)
        end = ["finish_reason"] if choice.get("finish_reason") else []
        for key in [*keys, *end] or ["nothing"]:
            yield index if isinstance(index, int) else 0, f"delta of {key}"


def _chain(kinds: Sequence[str]) -> str:
    return " > ".join(kinds) or repr(ABSENT)
