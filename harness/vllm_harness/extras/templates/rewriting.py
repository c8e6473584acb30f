"""How templates write arguments otherwise than dialects: in another order, without nulls, as in Python."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from string import Template
from typing import Any

from vllm_harness._scripted.dialects.form import Form
from vllm_harness._scripted.dialects.values import Parameters
from vllm_harness._scripted.meaning import Meaning, ToolCall


def rewritten(form: Form, meaning: Meaning, text: str, how: str) -> str:
    """Replaces the arguments of each call in a rendered turn by the same ones, written in another way."""
    position = 0
    for call in meaning.calls:
        own = form.calls.arguments(call, form.name)
        other = REWRITINGS[how](form, call)
        if own and own != other and (found := text.find(own, position)) >= 0:
            text = text[:found] + other + text[found + len(own) :]
            position = found + len(other)
        elif own:
            position = max(position, text.find(own, position))
    return text


def _sorted_keys(form: Form, call: ToolCall) -> str:
    return form.calls.arguments(ToolCall(call.name, _sorted(call.arguments)), form.name)


def _sorted(value: Any) -> Any:
    """Jinja's `dictsort` at every depth: it compares keys without regard to case."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value, key=str.lower)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _without_nulls(form: Form, call: ToolCall) -> str:
    return form.calls.arguments(ToolCall(call.name, _no_nulls(call.arguments)), form.name)


def _no_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _no_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return ["" if item is None else _no_nulls(item) for item in value]
    return value


def _python_values(form: Form, call: ToolCall, kept: tuple[type, ...] = (str,)) -> str:
    """The arguments as Python's `str` writes them, except those of the kept types."""
    notation = form.calls.arguments
    assert isinstance(notation, Parameters)
    assert isinstance(call.arguments, dict)
    return notation.between.join(
        notation(ToolCall(call.name, {key: value}), form.name)
        if isinstance(value, kept)
        else Template(notation.other or notation.string).substitute(key=key, value=str(value), type="")
        for key, value in call.arguments.items()
    )


def _python_scalars(form: Form, call: ToolCall) -> str:
    """The arguments with numbers, booleans and null as Python writes them, and objects and lists as JSON."""
    return _python_values(form, call, kept=(str, dict, list))


def _json_in_python(form: Form, call: ToolCall) -> str:
    """Keyword arguments with strings in single quotes, and objects and lists as JSON."""
    assert isinstance(call.arguments, dict)
    return ", ".join(f"{key}={_quoted(value)}" for key, value in call.arguments.items())


def _quoted(value: Any) -> str:
    if isinstance(value, str):
        escaped = re.sub(r"([\\'])", r"\\\1", value)
        return "'" + escaped.replace("\n", "\\n").replace("\r", "\\r") + "'"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else str(value)


REWRITINGS: dict[str, Callable[[Form, ToolCall], str]] = {
    "sorted keys": _sorted_keys,
    "without nulls": _without_nulls,
    "python values": _python_values,
    "python scalars": _python_scalars,
    "json in python": _json_in_python,
}
"""The ways of writing arguments by name; each takes the dialect's form and a call."""
