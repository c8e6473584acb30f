"""Runs LangChain's ChatOpenAI. Arguments: `responses` or `chat`, then cases. Prints the results as JSON."""

import functools
import json
import operator
import os
import sys
import traceback
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

QUESTIONS = {
    "loop": "Plan my weekend in Paris.",
    "parallel": "What is the weather in Paris and in Rome?",
    "structured": "Which city, and a hotel of how many stars?",
}
MOST_TURNS = 8


class Place(BaseModel):
    """The structured answer."""

    city: str
    stars: int


@tool
def get_weather(city: str) -> str:
    """Current weather of a city."""
    return f"18 degrees in {city}"


@tool
def find_hotel(city: str, stars: int, wishes: list[str]) -> str:
    """Finds a hotel."""
    return "Hôtel du Nord"


TOOLS = {each.name: each for each in (get_weather, find_hotel)}
responses = sys.argv[1] == "responses"
chat = ChatOpenAI(model=os.environ["MODEL"], use_responses_api=responses, stream_usage=True)


def turn(stream: bool, messages: list[Any]) -> tuple[AIMessage, str]:
    """Returns the model's message, and the text as a user saw it arrive."""
    bound = chat.bind_tools(list(TOOLS.values()))
    if not stream:
        message = bound.invoke(messages)
        return message, message.text
    chunks = list(bound.stream(messages))
    return functools.reduce(operator.add, chunks), "".join(chunk.text for chunk in chunks)


def loop(case: str, stream: bool) -> dict[str, Any]:
    """Runs a tool loop that sends the model's messages back unchanged."""
    messages: list[Any] = [HumanMessage(QUESTIONS[case])]
    seen: dict[str, Any] = {"calls": [], "reasoning": [], "output_tokens": []}
    for _ in range(MOST_TURNS):
        message, seen["shown"] = turn(stream, messages)
        messages.append(message)
        seen["calls"] += [[call["name"], call["args"]] for call in message.tool_calls]
        blocks = [block for block in message.content_blocks if block["type"] == "reasoning"]
        seen["reasoning"] += [block.get("reasoning", "") for block in blocks]
        seen["output_tokens"].append(message.usage_metadata["output_tokens"])
        messages += [TOOLS[call["name"]].invoke(call) for call in message.tool_calls]
        if not message.tool_calls:
            return {**seen, "text": message.text}
    return seen


def structured(case: str, stream: bool) -> dict[str, Any]:
    """Requests a structured answer."""
    typed = chat.with_structured_output(Place, method="json_schema")
    answer = list(typed.stream(QUESTIONS[case]))[-1] if stream else typed.invoke(QUESTIONS[case])
    return answer.model_dump()


def run(case: str, stream: bool) -> dict[str, Any]:
    return structured(case, stream) if case == "structured" else loop(case, stream)


def outcome(case: str) -> dict[str, Any]:
    """Returns the results of a case from bodies and from streams, or the traceback if it fails."""
    try:
        return {"body": run(case, False), "stream": run(case, True)}
    except Exception:
        return {"failed": traceback.format_exc()}


print(json.dumps({case: outcome(case) for case in sys.argv[2:]}))
