"""What was meant, or what came in one way, against what came out: pure functions.

White space around reasoning and text may go, as vLLM has it; arguments must be the same JSON.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from vllm_harness.regression.engines.in_process import Call, Parsed
from vllm_harness.scripted.meaning import Meaning, Reasoning, Text

REFUSED = "grammar refuses"
LONG, FEW = 150, 5
"""A call with a string of so many characters should come in so many pieces, or more."""
MARKERS = 2
"""How many tokens may be counted with the reasoning that are not of it."""
Wanted = tuple[str | None, Any]
"""A call's name and arguments; text that is no JSON stands as text."""


def differences(meaning: Meaning, result: Parsed) -> tuple[str, ...]:
    """What is wrong with a result, in words that stay the same from version to version; empty: nothing."""
    if result.error is not None:
        return (_raises(result),)
    meant = {kind: _joined(meaning, kind) for kind in (Reasoning, Text)}
    calls: list[Wanted] = [(call.name, call.arguments) for call in meaning.calls]
    return (*_told(meant[Reasoning], meant[Text], calls, result), *_of_pace(result))


def disagreement(whole: Parsed, other: Parsed) -> tuple[str, ...]:
    """How an answer differs from the one that was not streamed, in the same words; empty: not at all."""
    if other.error is not None:
        return (_raises(other),)
    if whole.error is not None:
        return ()  # told where that one is judged
    calls: list[Wanted] = [(call.name, _read(call.arguments)) for call in whole.calls]
    return _told(whole.reasoning or "", whole.content or "", calls, other)


def losses(result: Parsed) -> tuple[str, ...]:
    """What is wrong with an answer by itself, whatever the model may have meant."""
    if result.error is not None:
        return (_raises(result),)
    said = (result.reasoning or "").strip() or (result.content or "").strip() or result.calls
    return tuple(_of_usage(result)) if said else ("everything lost",)


def strangers(names: Collection[str], result: Parsed) -> tuple[str, ...]:
    """Whether a call is of a function that nobody called; with no names, any may be."""
    return ("another function's name",) if names and {call.name for call in result.calls} - set(names) else ()


def unsaid(words: Collection[str], result: Parsed) -> tuple[str, ...]:
    """Whether an answer without calls leaves out any of the words that were said."""
    if result.error is not None or result.calls:
        return ()
    said = f"{result.reasoning or ''}{result.content or ''}"
    return () if all(word in said for word in words) else ("lost without a word",)


def dropped(values: Collection[str], result: Parsed) -> tuple[str, ...]:
    """Whether an answer with calls leaves out any of the values that were said."""
    said = f"{result.reasoning or ''}{result.content or ''}{''.join(call.arguments for call in result.calls)}"
    lost = result.calls and not all(value in said for value in values)
    return ("a value lost without a word",) if lost else ()


def called(result: Parsed) -> tuple[str, ...]:
    """Whether there is a call where the request allows none."""
    return ("a call where none is allowed",) if result.calls else ()


def misnamed(ids: Sequence[str], result: Parsed) -> tuple[str, ...]:
    """Whether calls are identified otherwise than they say, or two by the same."""
    came = [call.id for call in result.calls if call.id is not None]
    twice = ("two calls, one id",) if len(set(came)) < len(came) else ()
    another = ids and len(ids) == len(result.calls) and list(ids) != [call.id for call in result.calls]
    return (*twice, *(("another id",) if another else ()))


def refused(result: Parsed) -> bool:
    """Whether a grammar kept the model from saying it."""
    return (result.error or "").startswith(REFUSED)


def not_barred(result: Parsed) -> tuple[str, ...]:
    """What is wrong where the request should have kept the model from saying it; empty: it did."""
    if result.error is None:
        return ("the model is not held",)
    return () if refused(result) else (_raises(result),)


def _raises(result: Parsed) -> str:
    return f"raises {(result.error or '').partition(':')[0]}"


def _told(reasoning: str, text: str, calls: Sequence[Wanted], result: Parsed) -> tuple[str, ...]:
    found = [
        *_of_text("reasoning", reasoning, result.reasoning or ""),
        *_of_text("text", text, result.content or ""),
        *_of_calls(calls, result.calls),
        *_of_usage(result),
    ]
    return tuple(dict.fromkeys(found))


def _joined(meaning: Meaning, kind: type[Reasoning] | type[Text]) -> str:
    return "".join(part.text for part in meaning.parts if isinstance(part, kind))


def _of_text(name: str, meant: str, came: str) -> list[str]:
    meant, came = meant.strip(), came.strip()
    if came == meant:
        return []
    if not came:
        return [f"{name} lost"]
    if not meant:
        return [f"{name} where none was meant"]
    return [f"{name} cut" if came in meant else f"{name} differs"]


def _of_usage(result: Parsed) -> list[str]:
    """Whether the tokens of reasoning are counted, its markers or not."""
    if result.thought is None:
        return []
    if result.thought == 0 and (result.reasoning or "").strip():
        return ["tokens of reasoning not counted"]
    counted = result.spoken is None or abs(result.thought - result.spoken) <= MARKERS
    return [] if counted else ["tokens of reasoning miscounted"]


def _of_pace(result: Parsed) -> list[str]:
    """Whether a long string that came a token at a time was held back until it was whole."""
    held = [call for call in result.calls if call.pieces is not None and _is_long(call) and call.pieces < FEW]
    return ["arguments are not streamed"] if held and result.way == "1" else []


def _is_long(call: Call) -> bool:
    given = _read(call.arguments)
    strings = [value for value in given.values() if isinstance(value, str)] if isinstance(given, dict) else []
    return any(len(string) >= LONG for string in strings)


def _of_calls(meant: Sequence[Wanted], came: Sequence[Call]) -> list[str]:
    found = []
    if len(came) < len(meant):
        found.append("call lost")
    if len(came) > len(meant):
        found.append("call too many")
    if len(came) >= len(meant) and any(call.index not in (None, place) for place, call in enumerate(came)):
        found.append("calls are not numbered from 0 on")
    for wanted, call in zip(meant, came, strict=False):
        found += _of_call(wanted, call)
    return found


def _of_call(wanted: Wanted, call: Call) -> list[str]:
    name, arguments = wanted
    if call.name is None and name is not None:
        return ["call without a name"]
    if call.name != name:
        return ["another function's name"]
    given = _read(call.arguments)
    if isinstance(given, str) and not isinstance(arguments, str):
        return ["arguments are no JSON"]
    if not isinstance(given, dict) and isinstance(arguments, dict):
        return ["arguments are no object"]
    return [] if _same(given, arguments) else ["arguments differ"]


def _read(arguments: str) -> Any:
    """The JSON value; text that is none, or that is a JSON string, stays as it is."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return arguments
    return arguments if isinstance(value, str) else value


def _same(one: object, other: object) -> bool:
    """Equal as JSON: 1 and true differ, 1 and 1.0 do not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other
