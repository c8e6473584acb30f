"""The tools of a scenario, whose outputs are defined in the scenario file instead of computed by code."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from vllm_harness._exchange.building import given
from vllm_harness._protocol.core.events import Json
from vllm_harness._scenarios.format import Output, Tool
from vllm_harness._scenarios.predicates import as_text, objections


class ToolResult(NamedTuple):
    """The result of a tool.

    Attributes:
        text: the output or the error message of the tool.
        failed: whether the tool failed.
        images: the URLs of the images that it returned.
    """

    text: str
    failed: bool = False
    images: tuple[str, ...] = ()


@dataclass(frozen=True)
class Toolbox:
    """The tools of a scenario while it runs.

    Attributes:
        functions: the functions that the model is offered, by name.
        of_server: the tools that the server under test itself calls, as a Responses request lists them.
        run: runs a tool by name with arguments; returns None if the tool has no output for them.
    """

    functions: Mapping[str, Tool]
    of_server: tuple[Mapping[str, Any], ...]
    run: Callable[[str, dict[str, Any]], ToolResult | None]

    @property
    def offered(self) -> list[Json]:
        """The functions as a request lists them."""
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
    """Replaces the bearer tokens of MCP servers, looked up by server label; an empty one removes a token."""
    return replace(toolbox, of_server=tuple(_with_token(tool, tokens) for tool in toolbox.of_server))


def _with_token(tool: Mapping[str, Any], tokens: Mapping[str, str]) -> Mapping[str, Any]:
    token = tokens.get(tool.get("server_label", ""))
    return tool if token is None else {**tool, "headers": bearer(token)}


def bearer(token: str | None) -> dict[str, str]:
    """Makes the Authorization header for a token; no header without a token."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def output_for(tool: Tool, arguments: Mapping[str, Any]) -> Output | None:
    """Finds the first output whose predicates hold; None if none does."""
    return next((output for output in tool.outputs if not objections(output.when, arguments)), None)


def run_tool(output: Output) -> ToolResult:
    """Waits as long as the tool takes; returns its result."""
    time.sleep(output.seconds)
    return outcome_of(output)


def outcome_of(output: Output) -> ToolResult:
    """Converts an output to the result of a tool."""
    failed = output.error is not None
    return ToolResult(text_of(output), failed, output.images)


def text_of(output: Output) -> str:
    """The text of an output."""
    if output.error is not None:
        return output.error
    if "output" not in output.model_fields_set:
        return ""
    return as_text(output.output) * output.times
