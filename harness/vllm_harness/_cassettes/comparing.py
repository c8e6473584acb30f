"""Two cassettes, turn by turn: in meaning, and in protocol."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any, Literal

from vllm_harness._cassettes.answers import answer_of, exchange_of
from vllm_harness._cassettes.format import Cassette, RecordedExchange
from vllm_harness._protocol.chat.schema import REASONING_KEYS
from vllm_harness._protocol.conversation.compare import OF_ONE_ANSWER
from vllm_harness._protocol.core.differences import differences
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
"""Keys whose texts are the model's words or the request's: the meaning compares them."""
_OF_THE_REQUEST = frozenset({"tools", "metadata"})
"""Keys whose value repeats what was asked for, as one value."""
_TOKENS = re.compile(r"tokens?(?:_per_turn)?$")
_BEFORE_WORDS = ("role", *REASONING_KEYS)
"""What a delta brings before all else, in whatever order its keys are written."""
_SHOWN = 6
Pair = tuple[str, RecordedExchange | None, RecordedExchange | None]
_EVENT = "event "
_CHUNK = f"{_EVENT}chat.completion.chunk"


@dataclass(frozen=True)
class TurnDifference:
    """Where two turns differ.

    Attributes:
        turn: its name.
        layer: `turn` where one has it and the other has not; `request`, `meaning`, or `protocol`.
        place: such as `calls[0].name` or `function_call.status`.
        left, right: what stands there, as text.
    """

    turn: str
    layer: Layer
    place: str
    left: str
    right: str


def compare(left: Cassette, right: Cassette) -> list[TurnDifference]:
    """Where two cassettes differ, in the order of their turns.

    Turns are paired by their names; where no name is in both, by their order. Ids, times and what else no two
    answers share count by their form: `call_…`, a number.
    """
    found: list[TurnDifference] = []
    for name, one, other in paired(left, right):
        if one is None or other is None:
            found.append(
                TurnDifference(
                    name, "turn", "", *(("nothing", "a turn") if one is None else ("a turn", "nothing"))
                )
            )
            continue
        found += compared(name, one, other)
    return found


def without_words(found: Sequence[TurnDifference]) -> list[TurnDifference]:
    """Without what depends on the words of a model that says what it likes: texts and how long they are."""
    return [each for each in found if not _of_words(each)]


def _of_words(difference: TurnDifference) -> bool:
    place = difference.place
    if difference.layer == "meaning":
        return not (place == "status" or place.endswith((".name", "]")))
    return difference.layer == "protocol" and _TOKENS.search(place) is not None


def paired(left: Cassette, right: Cassette) -> Iterator[Pair]:
    """The turns of two cassettes, each with its name on the left, else on the right."""
    lefts, rights = left.exchanges, right.exchanges
    if not {each.turn for each in lefts} & {each.turn for each in rights}:
        for number in range(max(len(lefts), len(rights))):
            one = lefts[number] if number < len(lefts) else None
            other = rights[number] if number < len(rights) else None
            yield (one or other).turn, one, other  # type: ignore[union-attr]
        return
    by_name = {each.turn: each for each in rights}
    for one in lefts:
        yield one.turn, one, by_name.pop(one.turn, None)
    for name, other in by_name.items():
        yield name, None, other


def compared(turn: str, left: RecordedExchange, right: RecordedExchange) -> list[TurnDifference]:
    """Where two exchanges differ in meaning and in protocol."""
    found = [*_meanings(turn, left, right)]
    first, second = facts(left), facts(right)
    alone = set(_events_of(first)) ^ set(_events_of(second))  # the order of the events tells of these
    for place in {**first, **second}:
        sides = first.get(place, ()), second.get(place, ())
        if sides[0] != sides[1] and _event_of(place) not in alone:
            found.append(TurnDifference(turn, "protocol", place, *map(_listed, sides)))
    found += _orders(turn, left, right)
    return found


def _event_of(place: str) -> str:
    """The type of the events that a fact is about; empty where it is not about events."""
    return place.partition(": ")[0] if place.startswith(_EVENT) else ""


def _events_of(found: Iterable[str]) -> Iterator[str]:
    return filter(None, map(_event_of, found))


def _meanings(turn: str, left: RecordedExchange, right: RecordedExchange) -> Iterator[TurnDifference]:
    first, second = answer_of(left), answer_of(right)
    if first is None or second is None:
        return
    for each in differences(first.meaning(), second.meaning()):
        place = each.path.removeprefix("$.")
        yield TurnDifference(turn, "meaning", place, brief(each.left), brief(each.right))


def facts(exchange: RecordedExchange) -> dict[str, tuple[str, ...]]:
    """What an answer is like, apart from its words: what each field of each kind of object holds.

    Returns:
        Fields such as `function_call.status` or `event response.completed: sequence_number`, each with the
        different values that it has, in order.
    """
    response = exchange.response
    found: dict[str, list[str]] = {"HTTP status": [str(response.status)]}
    kind = response.headers.get("content-type", "").partition(";")[0]
    found["content-type"] = [kind or "nothing"]
    was = exchange_of(exchange)
    body = was.whole
    root = {"responses": "response", "chat": "completion", "messages": "message", None: "body"}[was.api]
    if body is not None:
        _take(body, str(body.get("object") or body.get("type") or root), "", found)
    for event in was.json_events:
        named = str(event.get("type") or event.get("object") or "event")
        own = {key: value for key, value in event.items() if key not in ("response", "type")}
        _take(own, f"{_EVENT}{named}", ": ", found, within_event=True)
    return {place: tuple(dict.fromkeys(values)) for place, values in found.items()}


def _take(
    value: Mapping[str, Any],
    kind: str,
    mark: str,
    found: dict[str, list[str]],
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
            found.setdefault(f"{kind}{mark or '.'}{place}", []).append(_form(key, each, in_pieces))
            continue
        if not isinstance(each, list):
            found.setdefault(f"{kind}{mark or '.'}{place}", []).append("an object")
        for part in objects:
            named = part.get("type")
            # the first piece of a call alone says what it is, and may hold all that the others bring
            if isinstance(named, str) and not in_pieces and not (key == "delta" and within_event):
                whose = f"{kind}: {named}" if within_event else named
                _take(part, whose, "", found)
            else:
                _take(part, kind, mark, found, path=place, within_event=within_event)


def _form(key: str, value: Any, in_pieces: bool) -> str:
    """A value, or what it is like where two answers never share it.

    A text that comes in pieces may begin with an empty one, which a busy server joins with the next.
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
    """Where the events of two streams come in another order; equal ones in a row count as one."""
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
    """The types of a stream's events, equal ones that follow one another once; each choice by itself."""
    lines: dict[int, list[str]] = {}
    for event in exchange_of(exchange).json_events:
        kinds = [(0, str(event["type"]))] if event.get("type") else _of_chat(event)
        for choice, kind in kinds:
            lines.setdefault(choice, []).append(f"choice {choice}: {kind}" if choice else kind)
    return [kind for choice in sorted(lines) for kind, _ in groupby(lines[choice])]


def _of_chat(chunk: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """What a chunk of Chat Completions brings to which choice: a busy server joins what comes at once.

    The order of keys in an object tells nothing, so thoughts come before the words of the same delta.
    """
    choices = chunk.get("choices")
    told = [each for each in choices if isinstance(each, dict)] if isinstance(choices, list) else []
    if not told:
        yield 0, "usage" if chunk.get("usage") else "chunk without choices"
    for choice in told:
        index, delta = choice.get("index"), choice.get("delta")
        brings = [key for key, value in delta.items() if value] if isinstance(delta, dict) else []
        brings.sort(key=lambda key: key not in _BEFORE_WORDS)
        ends = ["finish_reason"] if choice.get("finish_reason") else []
        for key in [*brings, *ends] or ["nothing"]:
            yield index if isinstance(index, int) else 0, f"delta of {key}"


def _chain(kinds: Sequence[str]) -> str:
    return " > ".join(kinds) or repr(ABSENT)
