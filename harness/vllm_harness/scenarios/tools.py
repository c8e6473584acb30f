"""Tools of a scenario, answered from its data."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
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


@dataclass(frozen=True)
class Toolbox:
    """The tools of a scenario while it runs.

    Attributes:
        functions: what the model is offered, by name.
        of_server: what the server under test calls by itself, as tools of a request of the Responses API.
        run: what a tool answers to a call's name and arguments, and whether it failed; None: nothing.
    """

    functions: Mapping[str, Tool]
    of_server: tuple[Mapping[str, Any], ...]
    run: Callable[[str, dict[str, Any]], tuple[str, bool] | None]


def output_for(tool: Tool, arguments: Mapping[str, Any]) -> Output | None:
    """The first output whose conditions hold; None where there is none."""
    return next((each for each in tool.outputs if not objections(each.when, arguments)), None)


def run_tool(output: Output) -> tuple[str, bool]:
    """What a tool answers, after the time that it takes, and whether it failed."""
    time.sleep(output.seconds)
    return (text_of(output), False) if output.error is None else (output.error, True)


def text_of(output: Output) -> str:
    """An output as the text that a model gets."""
    value = output.output
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text * output.times
