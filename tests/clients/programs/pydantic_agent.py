"""Runs pydantic-ai against vLLM. Arguments: `responses` or `chat`, then cases. Prints the results as JSON."""

import asyncio
import json
import os
import sys
import traceback
from typing import Any

from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    AgentRunResultEvent,
    ModelResponse,
    NativeOutput,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.vllm import VLLMProvider

QUESTIONS = {
    "loop": "Plan my weekend in Paris.",
    "parallel": "What is the weather in Paris and in Rome?",
    "structured": "Which city, and a hotel of how many stars?",
    "structured_by_tool": "Which place?",
}


class Place(BaseModel):
    """The structured answer."""

    city: str
    stars: int


def get_weather(city: str) -> str:
    """Current weather of a city."""
    return f"18 degrees in {city}"


def find_hotel(city: str, stars: int, wishes: list[str]) -> str:
    """Finds a hotel."""
    return "Hôtel du Nord"


def agent(case: str) -> Agent[None, Any]:
    kind = OpenAIResponsesModel if sys.argv[1] == "responses" else OpenAIChatModel
    model = kind(os.environ["MODEL"], provider=VLLMProvider())
    match case:
        case "structured":
            return Agent(model, output_type=NativeOutput(Place))
        case "structured_by_tool":
            return Agent(model, output_type=Place)
    return Agent(model, tools=[get_weather, find_hotel])


async def streamed(case: str) -> tuple[Any, str]:
    """Returns the result of a run, and the text as a user saw it arrive."""
    result, shown = None, ""
    async with agent(case).run_stream_events(QUESTIONS[case]) as events:
        async for event in events:
            match event:
                case PartStartEvent(part=TextPart(content=text)):
                    shown += text
                case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                    shown += text
                case AgentRunResultEvent():
                    result = event.result
    return result, shown


def thought(part: Any) -> str:
    """Returns the text of a reasoning part; for Responses, pydantic-ai stores it in `provider_details`."""
    return part.content or "".join((part.provider_details or {}).get("raw_content", []))


async def run(case: str, stream: bool) -> Any:
    """Runs the agent until it returns its final output."""
    if stream:
        result, shown = await streamed(case)
    else:
        result = await agent(case).run(QUESTIONS[case])
        shown = result.output
    if case.startswith("structured"):
        return result.output.model_dump()
    answers = [message for message in result.all_messages() if isinstance(message, ModelResponse)]
    parts = [part for answer in answers for part in answer.parts]
    return {
        "calls": [[part.tool_name, part.args_as_dict()] for part in parts if part.part_kind == "tool-call"],
        "reasoning": [thought(part) for part in parts if part.part_kind == "thinking"],
        "output_tokens": [answer.usage.output_tokens for answer in answers],
        "shown": shown,
        "text": result.output,
    }


async def outcome(case: str) -> dict[str, Any]:
    """Returns the results of a case from bodies and from streams, or the traceback if it fails."""
    try:
        return {"body": await run(case, False), "stream": await run(case, True)}
    except Exception:
        return {"failed": traceback.format_exc()}


async def main(cases: list[str]) -> dict[str, Any]:
    return {case: await outcome(case) for case in cases}


print(json.dumps(asyncio.run(main(sys.argv[2:]))))
