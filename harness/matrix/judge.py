"""What was meant against what came out: pure functions.

White space around reasoning and text may go, as vLLM has it; arguments must be the same JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from harness.scripted.in_process import Call, Parsed
from harness.scripted.meaning import Meaning, Reasoning, Text, ToolCall


def differences(meaning: Meaning, result: Parsed) -> tuple[str, ...]:
    """What is wrong with a result, in words that stay the same from version to version; empty: nothing."""
    if result.error is not None:
        return (f"raises {result.error.partition(':')[0]}",)
    meant = {kind: _joined(meaning, kind) for kind in (Reasoning, Text)}
    found = [
        *_of_text("reasoning", meant[Reasoning], result.reasoning or ""),
        *_of_text("text", meant[Text], result.content or ""),
        *_of_calls([part for part in meaning.parts if isinstance(part, ToolCall)], result.calls),
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


def _of_calls(meant: Sequence[ToolCall], came: Sequence[Call]) -> list[str]:
    found = []
    if len(came) < len(meant):
        found.append("call lost")
    if len(came) > len(meant):
        found.append("call too many")
    for wanted, call in zip(meant, came, strict=False):
        found += _of_call(wanted, call)
    return found


def _of_call(wanted: ToolCall, call: Call) -> list[str]:
    if call.name is None:
        return ["call without a name"]
    if call.name != wanted.name:
        return ["another function's name"]
    try:
        given = json.loads(call.arguments)
    except ValueError:
        return ["arguments are no JSON"]
    if not isinstance(given, dict):
        return ["arguments are no object"]
    return [] if _same(given, wanted.arguments) else ["arguments differ"]


def _same(one: object, other: object) -> bool:
    """Equal as JSON: 1 and true differ, 1 and 1.0 do not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other
