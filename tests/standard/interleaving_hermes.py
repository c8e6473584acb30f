"""A vLLM tool parser plugin that parses like hermes but interleaves the streamed arguments of two calls.

Loaded by `--tool-parser-plugin`; it runs in the server's interpreter. Chat Completions allows such streams,
since each delta has the index of its call.
"""

from __future__ import annotations

from typing import Any

from vllm.entrypoints.generate.base.protocol import DeltaFunctionCall, DeltaMessage, DeltaToolCall
from vllm.tool_parsers import ToolParserManager
from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser


class Interleaves(Hermes2ProToolParser):
    """Holds back the arguments of two calls until both are complete, then streams their halves in turn."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._kept = {0: "", 1: ""}

    def extract_tool_calls_streaming(self, *given: Any, **named: Any) -> Any:
        answer = super().extract_tool_calls_streaming(*given, **named) or DeltaMessage()
        text = named.get("current_text") or given[1]
        for call in answer.tool_calls:
            self._kept[call.index] += (call.function and call.function.arguments) or ""
        answer.tool_calls = [call for call in answer.tool_calls if call.function and call.function.name]
        for call in answer.tool_calls:
            call.function.arguments = None
        if text.count("</tool_call>") == 2 and any(self._kept.values()):
            answer.tool_calls += [*self._halves(slice(None, 8)), *self._halves(slice(8, None))]
            self._kept = {0: "", 1: ""}
        return answer if answer.tool_calls or answer.content else None

    def _halves(self, part: slice) -> list[DeltaToolCall]:
        return [
            DeltaToolCall(index=index, function=DeltaFunctionCall(arguments=arguments[part]))
            for index, arguments in self._kept.items()
        ]


ToolParserManager.register_module("interleaves", module=Interleaves)
