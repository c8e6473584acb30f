"""The tools that tests offer, in the shapes of both APIs."""

from __future__ import annotations

from typing import Any

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
