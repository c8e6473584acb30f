"""The Hermes function-calling format: ChatML, and each call as JSON in a `<tool_call>` block.

Sources: https://github.com/NousResearch/Hermes-Function-Calling (README, "Prompt Format for Function
Calling") for the calls; the chat template of Qwen/Qwen3-8B for what stands between the blocks.
"""

from __future__ import annotations

import json

from harness.scripted.dialects.dialect import Dialect, in_order, refuse_markers
from harness.scripted.meaning import Meaning, ToolCall

_NAME = "hermes"
_TURN_MARKERS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")


def render(meaning: Meaning, *, gap: str = "\n\n") -> str:
    """`<think>` block, text, `<tool_call>` blocks on lines of their own, `<|im_end|>`.

    `gap` stands between the thoughts and the rest. `</tool_call>` inside a JSON string is data, and goes
    out as it stands.
    """
    turn = in_order(meaning, _NAME)
    body = "\n".join([*([turn.text] if turn.text else []), *map(_call, turn.calls)])
    refuse_markers(turn.reasoning or "", (*_TURN_MARKERS, "</think>"), _NAME)
    refuse_markers(turn.text or "", ("<think>", "<tool_call>"), _NAME)
    refuse_markers(body, _TURN_MARKERS, _NAME)
    thought = "" if turn.reasoning is None else f"<think>\n{turn.reasoning}\n</think>{gap}"
    return f"{thought}{body}<|im_end|>"


def _call(call: ToolCall) -> str:
    name = json.dumps(call.name, ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {call.arguments_json}}}\n</tool_call>'


DIALECT = Dialect(_NAME, "https://github.com/NousResearch/Hermes-Function-Calling", render)
