"""A plugin of a tool parser for vLLM: hermes, which streams the arguments of two calls by turns.

Loaded by `--tool-parser-plugin`; runs in the server's interpreter, where vLLM is. Chat Completions allow such
streams, since each delta has the index of its call.
"""

from __future__ import annotations

from typing import Any

from vllm.entrypoints.generate.base.protocol import DeltaMessage, DeltaToolCall
from vllm.tool_parsers import ToolParserManager
from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser


class Interleaves(Hermes2ProToolParser):
    """Keeps the arguments of the first call back until those of the second one come, or it has ended."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._kept: list[DeltaToolCall] = []

    def extract_tool_calls_streaming(self, *given: Any, **named: Any) -> Any:
        answer = super().extract_tool_calls_streaming(*given, **named) or DeltaMessage()
        text = named.get("current_text") or given[1]
        calls = []
        for call in answer.tool_calls:
            if call.index == 0 and not (call.function and call.function.name):
                self._kept.append(call)
            else:
                calls += [call, *self._kept[:1]] if call.index else [call]
                self._kept = self._kept[1:] if call.index else self._kept
        if text.count("</tool_call>") == 2:
            calls, self._kept = [*calls, *self._kept], []
        answer.tool_calls = calls
        return answer if calls or answer.content else None


ToolParserManager.register_module("interleaves", module=Interleaves)
