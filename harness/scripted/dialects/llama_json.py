"""Llama 3.1's JSON based tool calling: the whole message is text, or one call as a JSON object.

Source: "Llama 3.1 - Prompt Formats", section "JSON based tool calling" ("Only single tool calls are supported
as of now"), llama3_1/prompt_format.md of https://github.com/meta-llama/llama-models. The bare object and
`<|eot_id|>` as in the chat template of meta-llama/Llama-3.1-8B-Instruct, where `<|python_tag|>` and
`<|eom_id|>` belong to built-in tools.
"""

from __future__ import annotations

import json

from harness.scripted.dialects.dialect import Dialect, DialectError, in_order, refuse_markers
from harness.scripted.meaning import Meaning, ToolCall

_NAME = "llama_json"
_MARKERS = (
    *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|eom_id|>", "<|eot_id|>", "<|python_tag|>"),
)


def render(meaning: Meaning) -> str:
    """Text or one call, then `<|eot_id|>`; the format has no reasoning and no text beside a call."""
    turn = in_order(meaning, _NAME)
    if turn.reasoning is not None:
        raise DialectError("dialect llama_json has no reasoning", hint="leave the reasoning out")
    if len(turn.calls) > 1 or (turn.calls and turn.text):
        raise DialectError(
            "dialect llama_json says a text or one call, never more",
            hint="give each call and each text a turn of its own",
        )
    body = _call(turn.calls[0]) if turn.calls else turn.text or ""
    refuse_markers(body, _MARKERS, _NAME)
    return f"{body}<|eot_id|>"


def _call(call: ToolCall) -> str:
    name = json.dumps(call.name, ensure_ascii=False)
    return f'{{"name": {name}, "parameters": {call.arguments_json}}}'


DIALECT = Dialect(
    _NAME,
    "https://github.com/meta-llama/llama-models (llama3_1/prompt_format.md)",
    render,
)
