"""OpenAI's Harmony format, as gpt-oss writes it after a prompt that ends with `<|start|>assistant`.

Source: https://github.com/openai/harmony/blob/main/docs/format.md, sections "Chat conversation format",
"Receiving tool calls" and "Preambles".
"""

from __future__ import annotations

import json
import re

from vllm_harness._scripted.dialects.dialect import OTHER_NAME, Dialect, DialectError, refuse_markers
from vllm_harness._scripted.meaning import Meaning, Part, Reasoning, Text, ToolCall

_NAME = "harmony"
_MARKERS = tuple(
    f"<|{word}|>" for word in ("start", "end", "message", "channel", "constrain", "return", "call")
)


def render(meaning: Meaning) -> str:
    """Writes reasoning to `analysis`, the last text to `final`, and earlier texts to `commentary`.

    `<|return|>` and `<|call|>` stop the model, so a turn ends with its only call or with text.
    """
    parts = meaning.parts
    if not parts or isinstance(parts[-1], Reasoning):
        raise DialectError("dialect harmony ends a turn with text or a call", hint="add text or a call")
    if any(isinstance(part, ToolCall) for part in parts[:-1]):
        raise DialectError(
            "dialect harmony ends a turn at its first call", hint="give each call a separate turn"
        )
    messages = [_message(part, last=index == len(parts)) for index, part in enumerate(parts, start=1)]
    return "<|start|>assistant".join(messages)


def render_constrained(meaning: Meaning) -> str:
    """Like `render`, but marks a last text that is JSON, as gpt-oss does if the request has a schema."""
    raw = render(meaning)
    last = meaning.parts[-1]
    if isinstance(last, Text) and _is_json(last.text):
        head, _, answer = raw.rpartition("<|channel|>final<|message|>")
        return f"{head}<|channel|>final <|constrain|>json<|message|>{answer}"
    return raw


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _message(part: Part, *, last: bool) -> str:
    match part:
        case Reasoning(text):
            return f"<|channel|>analysis<|message|>{_plain(text)}<|end|>"
        case Text(text) if last:
            return f"<|channel|>final<|message|>{_plain(text)}<|return|>"
        case Text(text):
            return f"<|channel|>commentary<|message|>{_plain(text)}<|end|>"
        case ToolCall(name):
            header = f"<|channel|>commentary to={_recipient(name)} <|constrain|>json"
            return f"{header}<|message|>{_plain(part.arguments_json)}<|call|>"


def _recipient(name: str) -> str:
    if not re.fullmatch(r"[^\s<]+", name):
        raise DialectError(
            f"dialect harmony cannot write {name!r} as a recipient: it has whitespace or '<'", hint=OTHER_NAME
        )
    return f"functions.{name}"


def _plain(text: str) -> str:
    refuse_markers(text, _MARKERS, _NAME)
    return text


DIALECT = Dialect(
    _NAME,
    "https://github.com/openai/harmony/blob/main/docs/format.md",
    render,
    render_constrained,
    _MARKERS,
    ends=("<|call|>", "<|return|>"),
    reasoning=("<|channel|>analysis<|message|>", "<|end|>"),
    calls=("<|channel|>", "<|constrain|>", "<|message|>"),
    tokens=_MARKERS,
)
