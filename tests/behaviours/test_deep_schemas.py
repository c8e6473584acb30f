"""Over every API, a very deeply nested schema is refused before vLLM compiles a grammar from it.

OpenAI allows ten levels (https://platform.openai.com/docs/guides/structured-outputs). A server may allow
more, up to some limit.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.apis import PATHS, Api, Json, error_message
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.server import VllmServer

pytestmark = pytest.mark.vllm_needs("structured_output", "responses", "chat", "messages")

LEVELS = 40
USER: Json = {"messages": [{"role": "user", "content": "Plan a trip."}]}


def nested(levels: int) -> Json:
    """Returns a schema of nested objects."""
    schema: Json = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"inner": schema}, "required": ["inner"]}
    return schema


def by_format(api: Api, schema: Json) -> Json:
    """Returns a request for an answer that fits a schema."""
    named = {"name": "deep", "schema": schema}
    match api:
        case "responses":
            return {"input": "Plan a trip.", "text": {"format": {"type": "json_schema", **named}}}
        case "chat":
            return {**USER, "response_format": {"type": "json_schema", "json_schema": named}}
        case "messages":
            output = {"format": {"type": "json_schema", "schema": schema}}
            return {**USER, "max_tokens": 50, "output_config": output}


def by_tool(api: Api, schema: Json) -> Json:
    """Returns a request that forces a call of a strict tool."""
    function = {"name": "plan", "strict": True}
    match api:
        case "responses":
            tool = {"type": "function", **function, "parameters": schema}
            return {"input": "Plan a trip.", "tools": [tool], "tool_choice": "required"}
        case "chat":
            tool = {"type": "function", "function": {**function, "parameters": schema}}
            return {**USER, "tools": [tool], "tool_choice": "required"}
        case "messages":
            tool = {**function, "input_schema": schema}
            return {**USER, "max_tokens": 50, "tools": [tool], "tool_choice": {"type": "any"}}


@pytest.mark.covers("VC-007", "VC-008", "VR-059", "VA-005")
@pytest.mark.parametrize("ask", [by_format, by_tool])
def test_deep_schema_is_refused(
    ask: Callable[[Api, Json], Json], vllm_server: VllmServer, http: Endpoint
) -> None:
    for api, path in PATHS.items():
        answer = http.post(path, json={"model": vllm_server.model, **ask(api, nested(LEVELS))})
        assert answer.status_code == 400, f"{api}: {answer.text[:500]}"
        assert "nest" in error_message(answer), f"{api}: {answer.text[:500]}"
