"""The tool that the tests offer, in the formats of both APIs, and a call of this tool."""

from __future__ import annotations

import json
from typing import Any

from vllm_harness._scripted.meaning import ToolCall

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "City name, such as Paris"}},
    "required": ["city"],
    "additionalProperties": False,
}
DESCRIPTION = "Current weather of a city"

RESPONSES_TOOL: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": DESCRIPTION,
    "parameters": PARAMETERS,
    "strict": True,
}
CHAT_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "get_weather", "description": DESCRIPTION, "parameters": PARAMETERS, "strict": True},
}
INTERPRETER: dict[str, Any] = {"type": "code_interpreter", "container": {"type": "auto"}}

WEATHER = "What is the weather in Paris? Call the tool."
CALL = ToolCall("get_weather", {"city": "Paris"})


def check_call(item: Any) -> None:
    """Asserts that the item is the expected call, and that it is complete."""
    assert item.type == "function_call"
    assert item.name == CALL.name
    assert json.loads(item.arguments) == CALL.arguments
    assert item.call_id
    assert item.status == "completed"
