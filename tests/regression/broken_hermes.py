"""A plugin with tool parsers for vLLM: variants of its hermes parser, each broken on purpose in one way.

`--tool-parser-plugin` loads the plugin into the server's interpreter, which has vLLM.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any

from vllm.tool_parsers import ToolParserManager
from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser

Answer = Any  # ExtractedToolCallInformation, or DeltaMessage in a stream
Spoil = Callable[[Answer], None]


def _arguments(change: Callable[[str], str]) -> Spoil:
    def spoil(answer: Answer) -> None:
        for call in answer.tool_calls:
            if call.function.arguments:
                call.function.arguments = change(call.function.arguments)

    return spoil


def _swaps_calls(answer: Answer) -> None:
    for call in answer.tool_calls:
        if hasattr(call, "index"):
            call.index ^= 1
    answer.tool_calls = answer.tool_calls[::-1]


def _loses_second_call(answer: Answer) -> None:
    numbered = enumerate(answer.tool_calls)
    answer.tool_calls = [call for number, call in numbered if getattr(call, "index", number) == 0]


def _leaks_end_tag(answer: Answer) -> None:
    if any((call.function.arguments or "").endswith("}") for call in answer.tool_calls):
        answer.content = f"{answer.content or ''}</tool_call>"


def _loses_text(answer: Answer) -> None:
    answer.content = None


def _renames_function(answer: Answer) -> None:
    for call in answer.tool_calls:
        if call.function.name:
            call.function.name = call.function.name.replace("_", "")


def _raises_on_unicode(answer: Answer) -> None:
    for call in answer.tool_calls:
        (call.function.arguments or "").encode("ascii")


SPOILS: dict[str, Spoil] = {
    "drops_last_character": _arguments(lambda text: text.removesuffix("}")),
    "doubles_arguments": _arguments(lambda text: text * 2),
    "collapses_blanks": _arguments(lambda text: text.replace("  ", " ")),
    "swaps_calls": _swaps_calls,
    "loses_second_call": _loses_second_call,
    "leaks_end_tag": _leaks_end_tag,
    "loses_text": _loses_text,
    "renames_function": _renames_function,
    "raises_on_unicode": _raises_on_unicode,
}


class NeedsOneTokenADelta(Hermes2ProToolParser):
    """Loses all tokens of a delta with several tokens."""

    def extract_tool_calls_streaming(self, *given: Any, **named: Any) -> Any:
        answer = super().extract_tool_calls_streaming(*given, **named)
        tokens = named.get("delta_token_ids") or given[5]
        return answer if len(tokens) == 1 else None


class TakesItsTime(Hermes2ProToolParser):
    """Reads the whole text again for each delta, and blocks the event loop while it parses a body."""

    def extract_tool_calls(self, *given: Any, **named: Any) -> Any:
        busy_until = process_time() + 0.3
        while process_time() < busy_until:
            pass
        return super().extract_tool_calls(*given, **named)

    def extract_tool_calls_streaming(self, *given: Any, **named: Any) -> Any:
        text = named.get("current_text") or given[1]
        sum(map(ord, text * 8))
        return super().extract_tool_calls_streaming(*given, **named)


def _broken(spoil: Spoil) -> type[Hermes2ProToolParser]:
    class Broken(Hermes2ProToolParser):
        def extract_tool_calls(self, *given: Any, **named: Any) -> Any:
            answer = super().extract_tool_calls(*given, **named)
            if answer.tools_called:
                spoil(answer)
            return answer

        def extract_tool_calls_streaming(self, *given: Any, **named: Any) -> Any:
            answer = super().extract_tool_calls_streaming(*given, **named)
            if answer is not None:
                spoil(answer)
            return answer

    return Broken


for _name, _spoil in SPOILS.items():
    ToolParserManager.register_module(f"broken_{_name}", module=_broken(_spoil))
ToolParserManager.register_module("broken_needs_one_token_a_delta", module=NeedsOneTokenADelta)
ToolParserManager.register_module("broken_takes_its_time", module=TakesItsTime)
