"""Tools of a scenario, answered from its data."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from vllm_harness._exchange.building import given
from vllm_harness._protocol.core.events import Json
from vllm_harness._scenarios.format import Output, Tool
from vllm_harness._scenarios.predicates import objections


class ToolResult(NamedTuple):
    """What a tool gave.

    Attributes:
        text: its output, or what went wrong.
        failed: whether it failed.
        images: URLs of what it shows.
    """

    text: str
    failed: bool = False
    images: tuple[str, ...] = ()


@dataclass(frozen=True)
class Toolbox:
    """The tools of a scenario while it runs.

    Attributes:
        functions: what the model is offered, by name.
        of_server: what the server under test calls by itself, as tools of a request of the Responses API.
        run: what a tool gives for a call's name and arguments; None: nothing.
    """

    functions: Mapping[str, Tool]
    of_server: tuple[Mapping[str, Any], ...]
    run: Callable[[str, dict[str, Any]], ToolResult | None]

    @property
    def offered(self) -> list[Json]:
        """The functions as a request has them."""
        return [
            given(
                name=name,
                description=tool.description or None,
                parameters=tool.parameters,
                strict=tool.strict,
            )
            for name, tool in self.functions.items()
        ]


def with_tokens(toolbox: Toolbox, tokens: Mapping[str, str]) -> Toolbox:
    """Tools of MCP servers with other bearer tokens, by the servers' labels; an empty one: none."""
    return replace(toolbox, of_server=tuple(_with_token(tool, tokens) for tool in toolbox.of_server))


def _with_token(tool: Mapping[str, Any], tokens: Mapping[str, str]) -> Mapping[str, Any]:
    token = tokens.get(tool.get("server_label", ""))
    return tool if token is None else {**tool, "headers": bearer(token)}


def bearer(token: str | None) -> dict[str, str]:
    """The header with a token; none without one."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def output_for(tool: Tool, arguments: Mapping[str, Any]) -> Output | None:
    """The first output whose conditions hold; None where there is none."""
    return next((each for each in tool.outputs if not objections(each.when, arguments)), None)


def run_tool(output: Output) -> ToolResult:
    """What a tool gives, after the time that it takes."""
    time.sleep(output.seconds)
    return outcome_of(output)


def outcome_of(output: Output) -> ToolResult:
    """An output as a model gets it."""
    failed = output.error is not None
    return ToolResult(text_of(output), failed, output.images)


def text_of(output: Output) -> str:
    """The text of an output."""
    if output.error is not None:
        return output.error
    value = output.output
    if value is None and "output" not in output.model_fields_set:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text * output.times
