"""Runs the openai SDK's helpers. Arguments: `responses` or `chat`, then cases. Prints the results as JSON."""

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from openai import OpenAI, pydantic_function_tool
from pydantic import BaseModel

WEEKEND = "Plan my weekend in Paris."
WHICH = "Which city, and a hotel of how many stars?"
BOTH = "What is the weather in Paris and in Rome?"
STORY = "Tell me a long story."
MOST_TURNS = 8


class Weather(BaseModel):
    """Current weather of a city."""

    city: str

    def run(self) -> str:
        return f"18 degrees in {self.city}"


class Hotel(BaseModel):
    """Finds a hotel."""

    city: str
    stars: int
    wishes: list[str]

    def run(self) -> str:
        return "Hôtel du Nord"


class StartJob(BaseModel):
    """Starts a job."""

    kind: str


class CheckJob(BaseModel):
    """Gets the state of a job."""

    job: str


class Place(BaseModel):
    """The structured answer."""

    city: str
    stars: int


CHAT_TOOLS = [
    pydantic_function_tool(Weather, name="get_weather"),
    pydantic_function_tool(Hotel, name="find_hotel"),
]
JOB_TOOLS = [
    pydantic_function_tool(StartJob, name="start_job"),
    pydantic_function_tool(CheckJob, name="check_job"),
]

client = OpenAI()
model = os.environ["MODEL"]


def respond(stream: bool, **request: Any) -> tuple[Any, str]:
    """Returns the response, and the text as a user saw it arrive."""
    if not stream:
        response = client.responses.parse(model=model, **request)
        return response, response.output_text
    shown = ""
    with client.responses.stream(model=model, **request) as events:
        for event in events:
            if event.type == "response.output_text.delta":
                shown += event.delta
        return events.get_final_response(), shown


def chat(stream: bool, **request: Any) -> tuple[Any, str]:
    """Returns the completion, and the text as a user saw it arrive."""
    if not stream:
        completion = client.chat.completions.parse(model=model, **request)
        return completion, completion.choices[0].message.content or ""
    shown = ""
    with client.chat.completions.stream(
        model=model, stream_options={"include_usage": True}, **request
    ) as events:
        for event in events:
            if event.type == "content.delta":
                shown += event.delta
        return events.get_final_completion(), shown


def responses_turns(stream: bool, question: str) -> dict[str, Any]:
    """Runs a tool loop that sends the response's items back unchanged."""
    conversation: list[Any] = [{"role": "user", "content": question}]
    seen: dict[str, Any] = {"calls": [], "reasoning": [], "output_tokens": []}
    for _ in range(MOST_TURNS):
        response, seen["shown"] = respond(stream, input=conversation, tools=CHAT_TOOLS)
        seen["output_tokens"].append(response.usage.output_tokens)
        seen["reasoning"] += reasoning_of(response)
        conversation += response.output
        calls = calls_of(response)
        seen["calls"] += [[call.name, json.loads(call.arguments)] for call in calls]
        conversation += [
            {"type": "function_call_output", "call_id": call.call_id, "output": call.parsed_arguments.run()}
            for call in calls
        ]
        if not calls:
            return {**seen, "status": response.status, "text": response.output_text}
    return seen


def chat_turns(stream: bool, question: str) -> dict[str, Any]:
    """Runs a tool loop that sends the assistant's messages back unchanged."""
    messages: list[Any] = [{"role": "user", "content": question}]
    seen: dict[str, Any] = {"calls": [], "reasoning": [], "output_tokens": []}
    for _ in range(MOST_TURNS):
        completion, seen["shown"] = chat(stream, messages=messages, tools=CHAT_TOOLS)
        seen["output_tokens"].append(completion.usage.completion_tokens)
        choice = completion.choices[0]
        seen["reasoning"].append(getattr(choice.message, "reasoning", None))
        messages.append(choice.message)
        calls = choice.message.tool_calls or []
        for call in calls:
            seen["calls"].append([call.function.name, json.loads(call.function.arguments)])
            output = call.function.parsed_arguments.run()
            messages.append({"role": "tool", "tool_call_id": call.id, "content": output})
        if not calls:
            return {**seen, "status": choice.finish_reason, "text": choice.message.content}
    return seen


def responses_parsed(stream: bool) -> dict[str, Any]:
    """Requests a structured answer."""
    response, _ = respond(stream, input=WHICH, text_format=Place)
    return response.output_parsed.model_dump()


def chat_parsed(stream: bool) -> dict[str, Any]:
    """Requests a structured answer."""
    completion, _ = chat(stream, messages=[{"role": "user", "content": WHICH}], response_format=Place)
    return completion.choices[0].message.parsed.model_dump()


def responses_choice(stream: bool, choice: str) -> list[Any]:
    """Returns the status, calls and text of the response to a request with this tool_choice."""
    wanted = {"type": "function", "name": "get_weather"} if choice == "named" else choice
    response, shown = respond(
        stream, input=f"choice {choice}", tools=CHAT_TOOLS[:1], tool_choice=wanted, max_output_tokens=200
    )
    calls = [[call.name, json.loads(call.arguments)] for call in calls_of(response)]
    return [response.status, calls, shown]


def chat_choice(stream: bool, choice: str) -> list[Any]:
    """Returns the finish reason, calls and text of the completion with this tool_choice."""
    wanted: Any = {"type": "function", "function": {"name": "get_weather"}} if choice == "named" else choice
    completion, shown = chat(
        stream,
        messages=[{"role": "user", "content": f"choice {choice}"}],
        tools=CHAT_TOOLS[:1],
        tool_choice=wanted,
        max_tokens=200,
    )
    message = completion.choices[0].message
    calls = [[c.function.name, json.loads(c.function.arguments)] for c in message.tool_calls or []]
    return [completion.choices[0].finish_reason, calls, shown]


def stateful(stream: bool) -> dict[str, Any]:
    """Runs five stored turns, each sending only its new items; two of them follow the first turn."""
    texts, calls = [], []

    def turn(previous: Any, text: str | None = None, output: str | None = None) -> Any:
        new = {"role": "user", "content": text}
        if output is not None:
            (call,) = calls_of(previous)
            new = {"type": "function_call_output", "call_id": call.call_id, "output": output}
        response, shown = respond(
            stream, input=[new], tools=JOB_TOOLS, previous_response_id=previous.id if previous else None
        )
        assert response.previous_response_id == (previous.id if previous else None)
        texts.append(shown)
        calls.append([[call.name, json.loads(call.arguments)] for call in calls_of(response)])
        return response

    first = turn(None, "Please start a job.")
    third = turn(turn(first, output="job-7"), output="done")
    turn(turn(third, "Please look again."), output="archived")
    turn(first, output="refused")
    return {"texts": texts, "calls": calls}


def responses_cut(stream: bool) -> list[Any]:
    """Returns how a truncated response ends."""
    request: dict[str, Any] = {"model": model, "input": STORY, "max_output_tokens": 12}
    if not stream:
        response = client.responses.create(**request)
        return [f"response.{response.status}", response.incomplete_details.reason]
    with client.responses.stream(**request) as events:
        last = list(events)[-1]
    return [last.type, last.response.incomplete_details.reason]


def chat_cut(stream: bool) -> list[Any]:
    """Returns how a truncated completion ends."""
    messages: list[Any] = [{"role": "user", "content": STORY}]
    if not stream:
        completion = client.chat.completions.create(model=model, messages=messages, max_tokens=12)
    else:
        with client.chat.completions.stream(
            model=model, messages=messages, max_tokens=12, stream_options={"include_usage": True}
        ) as events:
            events.until_done()
            completion = events.current_completion_snapshot
    return [completion.choices[0].finish_reason, completion.usage.completion_tokens]


def calls_of(response: Any) -> list[Any]:
    """Returns the function calls in a response."""
    return [item for item in response.output if item.type == "function_call"]


def reasoning_of(response: Any) -> list[str]:
    """Returns the reasoning in a response."""
    items = [item for item in response.output if item.type == "reasoning"]
    return ["".join(part.text for part in item.content or []) for item in items]


def choices(send: Callable[[bool, str], Any], stream: bool) -> dict[str, Any]:
    """Returns the results for every tool_choice."""
    return {choice: send(stream, choice) for choice in ("auto", "required", "named", "none")}


CASES: dict[str, dict[str, Callable[[bool], Any]]] = {
    "responses": {
        "loop": lambda stream: responses_turns(stream, WEEKEND),
        "parallel": lambda stream: responses_turns(stream, BOTH),
        "structured": responses_parsed,
        "choices": lambda stream: choices(responses_choice, stream),
        "stateful": stateful,
        "cut": responses_cut,
    },
    "chat": {
        "loop": lambda stream: chat_turns(stream, WEEKEND),
        "parallel": lambda stream: chat_turns(stream, BOTH),
        "structured": chat_parsed,
        "choices": lambda stream: choices(chat_choice, stream),
        "cut": chat_cut,
    },
}


def run(case: str, stream: bool) -> Any:
    return CASES[sys.argv[1]][case](stream)


def outcome(case: str) -> dict[str, Any]:
    """Returns the results of a case from bodies and from streams, or the traceback if it fails."""
    try:
        return {"body": run(case, False), "stream": run(case, True)}
    except Exception:
        return {"failed": traceback.format_exc()}


print(json.dumps({case: outcome(case) for case in sys.argv[2:]}))
