"""Runs openai-agents. Arguments: `responses` or `chat`, then cases. Prints the results as JSON."""

import asyncio
import json
import os
import sys
import traceback
from typing import Any

from agents import Agent, ItemHelpers, ModelSettings, Runner, function_tool, set_default_openai_api
from pydantic import BaseModel

QUESTIONS = {
    "loop": "Plan my weekend in Paris.",
    "parallel": "What is the weather in Paris and in Rome?",
    "structured": "Which city, and a hotel of how many stars?",
}
PLANNER = "You plan trips."


class Place(BaseModel):
    """The structured answer."""

    city: str
    stars: int


@function_tool
def get_weather(city: str) -> str:
    """Current weather of a city."""
    return f"18 degrees in {city}"


@function_tool
def find_hotel(city: str, stars: int, wishes: list[str]) -> str:
    """Finds a hotel."""
    return "Hôtel du Nord"


def agent(case: str) -> Agent[Any]:
    given = {"tools": [get_weather, find_hotel]} if case != "structured" else {"output_type": Place}
    counted = ModelSettings(include_usage=True)
    return Agent("planner", instructions=PLANNER, model=os.environ["MODEL"], model_settings=counted, **given)


async def run(case: str, stream: bool) -> Any:
    """Runs the agent until it returns its final output."""
    shown = ""
    if stream:
        result: Any = Runner.run_streamed(agent(case), QUESTIONS[case])
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.created":
                shown = ""
            elif event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                shown += event.data.delta
    else:
        result = await Runner.run(agent(case), QUESTIONS[case])
    if case == "structured":
        return result.final_output.model_dump()
    return {**items(result), "shown": shown if stream else result.final_output, "text": result.final_output}


def items(result: Any) -> dict[str, Any]:
    """Returns the calls, reasoning and messages of a run, and the number of output tokens of each turn."""
    seen: dict[str, Any] = {"calls": [], "reasoning": []}
    for item in result.new_items:
        if item.type == "tool_call_item":
            seen["calls"].append([item.raw_item.name, json.loads(item.raw_item.arguments)])
        elif item.type == "reasoning_item":
            seen["reasoning"].append("".join(part.text for part in item.raw_item.content or []))
    written = [item for item in result.new_items if item.type == "message_output_item"]
    seen["messages"] = [ItemHelpers.text_message_output(item) for item in written]
    return {**seen, "output_tokens": [answer.usage.output_tokens for answer in result.raw_responses]}


async def outcome(case: str) -> dict[str, Any]:
    """Returns the results of a case from bodies and from streams, or the traceback if it fails."""
    try:
        return {"body": await run(case, False), "stream": await run(case, True)}
    except Exception:
        return {"failed": traceback.format_exc()}


async def main(cases: list[str]) -> dict[str, Any]:
    return {case: await outcome(case) for case in cases}


set_default_openai_api("responses" if sys.argv[1] == "responses" else "chat_completions")
print(json.dumps(asyncio.run(main(sys.argv[2:]))))
