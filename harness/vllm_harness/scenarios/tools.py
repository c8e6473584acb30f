"""Tools of a scenario, answered from its data."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_harness.scenarios.format import Output, Tool
from vllm_harness.scenarios.predicates import objections


@dataclass(frozen=True)
class Result:
    """What a tool gave for a call.

    Attributes:
        call_id: of the call.
        text: its output, or what went wrong.
        failed: whether the tool failed.
    """

    call_id: str
    text: str
    failed: bool = False


def output_for(tool: Tool, arguments: Mapping[str, Any]) -> Output | None:
    """The first output whose conditions hold; None where there is none."""
    return next((each for each in tool.outputs if not objections(each.when, arguments)), None)


def run_tool(output: Output, call_id: str) -> Result:
    """What a tool answers, after the time that it takes."""
    time.sleep(output.seconds)
    if output.error is not None:
        return Result(call_id, output.error, failed=True)
    return Result(call_id, text_of(output))


def text_of(output: Output) -> str:
    """An output as the text that a model gets."""
    value = output.output
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text * output.times
