"""Runs the anthropic SDK. Arguments: `messages`, then cases. Prints the results as JSON."""

import json
import os
import sys
import traceback
from typing import Any

from anthropic import Anthropic

QUESTIONS = {
    "loop": "Plan my weekend in Paris.",
    "parallel": "What is the weather in Paris and in Rome?",
}
MOST_TURNS = 8
CITY = {"type": "string"}
TOOLS: list[Any] = [
    {
        "name": "get_weather",
        "description": "Current weather of a city.",
        "input_schema": {"type": "object", "properties": {"city": CITY}, "required": ["city"]},
    },
    {
        "name": "find_hotel",
        "description": "Finds a hotel.",
        "input_schema": {
            "type": "object",
            "properties": {
                "city": CITY,
                "stars": {"type": "integer"},
                "wishes": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["city", "stars", "wishes"],
        },
    },
]

client = Anthropic()


def output_of(call: Any) -> dict[str, Any]:
    """Returns the tool_result block for a call."""
    outputs = {"get_weather": "18 degrees in {city}", "find_hotel": "Hôtel du Nord"}
    return {"type": "tool_result", "tool_use_id": call.id, "content": outputs[call.name].format(**call.input)}


def ask(stream: bool, messages: list[Any]) -> tuple[Any, str]:
    """Returns the message, and the text as a user saw it arrive."""
    request: dict[str, Any] = {
        "model": os.environ["MODEL"],
        "max_tokens": 512,
        "messages": messages,
        "tools": TOOLS,
        "system": "You plan trips.",
    }
    if not stream:
        message = client.messages.create(**request)
        return message, text_of(message)
    with client.messages.stream(**request) as events:
        shown = "".join(events.text_stream)
        return events.get_final_message(), shown


def text_of(message: Any) -> str:
    """Returns the text blocks of a message."""
    return "".join(block.text for block in message.content if block.type == "text")


def run(case: str, stream: bool) -> dict[str, Any]:
    """Runs a tool loop that sends the assistant's blocks back unchanged."""
    messages: list[Any] = [{"role": "user", "content": QUESTIONS[case]}]
    seen: dict[str, Any] = {"calls": [], "reasoning": [], "output_tokens": [], "stop_reasons": []}
    for _ in range(MOST_TURNS):
        message, seen["shown"] = ask(stream, messages)
        seen["output_tokens"].append(message.usage.output_tokens)
        seen["stop_reasons"].append(message.stop_reason)
        seen["reasoning"] += [block.thinking for block in message.content if block.type == "thinking"]
        calls = [block for block in message.content if block.type == "tool_use"]
        seen["calls"] += [[call.name, call.input] for call in calls]
        messages.append({"role": "assistant", "content": message.content})
        messages.append({"role": "user", "content": [output_of(call) for call in calls]})
        if not calls:
            return {**seen, "text": text_of(message)}
    return seen


def outcome(case: str) -> dict[str, Any]:
    """Returns the results of a case from bodies and from streams, or the traceback if it fails."""
    try:
        return {"body": run(case, False), "stream": run(case, True)}
    except Exception:
        return {"failed": traceback.format_exc()}


print(json.dumps({case: outcome(case) for case in sys.argv[2:]}))
