"""Stories: a conversation in a chosen form, a request that continues it, and the model's answer.

A story is plain data, so that a failed story can be stored in `cases/properties` and run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any, Literal

from pydantic import Field

from tests.apis import Api, Json
from tests.behaviours.tools import CHAT_TOOL, RESPONSES_TOOL
from tests.case_files import FOLDER
from tests.messages_api import TOOL
from tests.prompts import OF_THE_MODEL, Conversation, Step, Turn, arguments
from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.strict import StrictModel

KEPT = FOLDER / "properties"
ShapedTurn = tuple[str, ...]
"""A turn's kind, the form in which it is sent, and its texts: a `Turn` of tests/prompts.py plus a form."""
JOINTS = ("\n", "")
Effort = Literal["none", "low", "high"]


class Story(StrictModel):
    """A conversation, the request that continues it, and the expected answer.

    Attributes:
        api: the API.
        turns: the earlier turns: `[user, text, Hello.]`, `[call, item, "1", Oslo]`,
            `[output, parts, "1", Rain.]`.
        by_id: whether the server generates the model's turns and each request refers to the response before
            by previous_response_id; otherwise the request contains the whole history.
        tools: whether the tool get_weather is offered.
        options: further fields of the request, in the form of its API.
        says: the model's answer, as turns without a form.
        refused: a regular expression that matches the error if the API refuses the options, or else empty.
    """

    api: Api
    turns: tuple[ShapedTurn, ...]
    by_id: bool = False
    tools: bool = False
    options: Json = Field(default_factory=dict)
    says: tuple[Turn, ...] = (("assistant", "Fine."),)
    refused: str = ""

    @property
    def segments(self) -> list[tuple[list[ShapedTurn], list[Turn]]]:
        """The requests of the story: for each, the turns that it adds, and the model's answer."""
        if not self.by_id:
            return [(list(self.turns), list(self.says))]
        requests: list[tuple[list[ShapedTurn], list[Turn]]] = [([], [])]
        for turn in self.turns:
            added, answer = requests[-1]
            if turn[0] in OF_THE_MODEL:
                answer.append(without_shape(turn))
            elif answer:
                requests.append(([turn], []))
            else:
                added.append(turn)
        requests[-1][1].extend(self.says)
        return requests

    @property
    def effort(self) -> Effort | None:
        """The reasoning effort that the request sets, if it changes the prompt."""
        return _effort(self.api, self.options)

    @property
    def is_json(self) -> bool:
        """Whether the answer must be JSON."""
        answer_format = {
            "responses": self.options.get("text", {}).get("format"),
            "chat": self.options.get("response_format"),
            "messages": self.options.get("output_config", {}).get("format"),
        }[self.api]
        return bool(answer_format) and answer_format["type"] != "text"

    def conversations(self, *, harmony: bool) -> list[Conversation]:
        """Returns the conversations from which the family's template may make the prompt.

        No API defines how to join the parts of a system message or of an output. A summary is rendered as
        reasoning, except on Harmony, whose analysis is the full reasoning. For a template without a developer
        role, the developer's text and the instructions become one system message (vllm#43590).
        """
        turns = [turn for turn in self.turns if not (harmony and turn[:2] == ("thoughts", "summary"))]
        fields = {
            "instructions": self.options.get("instructions"),
            "tools": self.tools,
            "effort": self.effort,
        }
        if not harmony and fields["instructions"] and turns[0][0] == "developer":
            kind, shape, text, *more = turns[0]
            turns[0] = (kind, shape, f"{fields.pop('instructions')}\n\n{text}", *more)
        inputs = dict.fromkeys(
            tuple(_as_rendered(turn, joint, of_output) for turn in turns)
            for joint, of_output in product(JOINTS, repeat=2)
        )
        return [
            Conversation(id="story", covers=(), steps=(Step.model_validate({**fields, "input": each}),))
            for each in inputs
        ]

    def refused_for(self, why: tuple[Json, str]) -> Story:
        """Returns the story with options that the API refuses, and a pattern for the error."""
        options, names = why
        return self.model_copy(update={"options": {**self.options, **options}, "refused": names})

    def request(self, turns: Sequence[ShapedTurn]) -> Json:
        """Returns a request with these turns, in the form of the story's API."""
        return _REQUESTS[self.api](self, turns)


class KeptStory(StrictModel):
    """A story that once failed, stored as a file.

    Attributes:
        id: the name of the file, without its suffix.
        title: a short description.
        models: the model entries on which it runs.
        known: the id of the vLLM defect that the story shows; empty if the story passes.
        story: the story itself.
    """

    id: str
    title: str
    models: tuple[str, ...]
    known: str = ""
    story: Story


@cache
def kept_stories() -> tuple[KeptStory, ...]:
    """Returns the stories in `cases/properties`."""
    files = sorted(KEPT.glob("*.yaml"))
    return tuple(KeptStory.model_validate({"id": file.stem, **read_yaml(file).data}) for file in files)


def without_shape(turn: ShapedTurn) -> Turn:
    """Returns the turn as an object of tests/prompts.py."""
    kind, _, *texts = turn
    return (kind, *texts)


def _as_rendered(turn: ShapedTurn, joint: str, of_output: str) -> Turn:
    """Joins the parts of a system message or of an output into one text."""
    kind, _, *texts = turn
    if kind == "output":
        return (kind, texts[0], of_output.join(texts[1:]))
    return (kind, joint.join(texts)) if kind in ("system", "developer") else (kind, *texts)


def _effort(api: Api, options: Json) -> Effort | None:
    effort = {
        "responses": options.get("reasoning", {}).get("effort"),
        "chat": options.get("reasoning_effort"),
        "messages": options.get("output_config", {}).get("effort"),
    }[api]
    if options.get("thinking", {}).get("type") == "disabled":
        return "none"
    return effort if effort in ("none", "low", "high") else None


def _texts(texts: Sequence[str], part_type: str) -> list[Json]:
    return [{"type": part_type, "text": text} for text in texts]


def _for_responses(story: Story, turns: Sequence[ShapedTurn]) -> Json:
    only = turns[0] if len(turns) == 1 else ("", "")
    request = {"input": only[2] if only[:2] == ("user", "string") else [_item(turn) for turn in turns]}
    return {**request, **({"tools": [RESPONSES_TOOL]} if story.tools else {}), **story.options}


def _item(turn: ShapedTurn) -> Json:
    kind, shape, *texts = turn
    match kind:
        case "thoughts":
            summary = [{"type": "summary_text", "text": texts[0]}] if shape == "summary" else []
            content = [] if summary else _texts(texts, "reasoning_text")
            return {"type": "reasoning", "id": "rs_1", "summary": summary, "content": content}
        case "assistant":
            return _message(shape, texts[0])
        case "call":
            call = {"call_id": f"call_{texts[0]}", "name": "get_weather", "arguments": arguments(texts[1])}
            whole = {"id": f"fc_{texts[0]}", "status": "completed"} if shape == "item" else {}
            return {"type": "function_call", **call, **whole}
        case "output":
            whole = {"id": f"fco_{texts[0]}", "status": "completed"} if shape == "item" else {}
            output = _texts(texts[1:], "input_text") if shape == "parts" else texts[1]
            return {"type": "function_call_output", "call_id": f"call_{texts[0]}", "output": output, **whole}
        case _:
            content = _texts(texts, "input_text") if shape == "parts" else texts[0]
            return {**({"type": "message"} if shape == "typed" else {}), "role": kind, "content": content}


def _message(shape: str, text: str) -> Json:
    if shape == "short":
        return {"role": "assistant", "content": text}
    message = {"type": "message", "role": "assistant"}
    if shape == "bare":
        return {**message, "content": _texts([text], "output_text")}
    content = [{"type": "output_text", "text": text, "annotations": list[Json]()}]
    return {**message, "id": "msg_1", "status": "completed", "content": content}


def _for_chat(story: Story, turns: Sequence[ShapedTurn]) -> Json:
    messages: list[Json] = []
    for kind, shape, *texts in turns:
        content = _texts(texts, "text") if shape == "parts" else texts[0]
        if kind in OF_THE_MODEL:
            _add(_assistant(messages), kind, shape, texts)
        elif kind == "output":
            output = _texts(texts[1:], "text") if shape == "parts" else texts[1]
            messages.append({"role": "tool", "tool_call_id": f"call_{texts[0]}", "content": output})
        else:
            messages.append({"role": kind, "content": content})
    return {"messages": messages, **({"tools": [CHAT_TOOL]} if story.tools else {}), **story.options}


def _assistant(messages: list[Json]) -> Json:
    """Returns the model's message that the turn continues."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant"})
    return messages[-1]


def _add(message: Json, kind: str, shape: str, texts: Sequence[str]) -> None:
    match kind:
        case "thoughts":
            message["reasoning"] = texts[0]
        case "assistant":
            message["content"] = _texts(texts, "text") if shape == "parts" else texts[0]
        case _:
            if shape in ("null", "empty"):
                message.setdefault("content", None if shape == "null" else "")
            function = {"name": "get_weather", "arguments": arguments(texts[1])}
            call = {"id": f"call_{texts[0]}", "type": "function", "function": function}
            message.setdefault("tool_calls", []).append(call)


def _for_messages(story: Story, turns: Sequence[ShapedTurn]) -> Json:
    request: Json = {"max_tokens": 2000, "messages": []}
    messages = request["messages"]
    for kind, shape, *texts in turns:
        if kind == "system":
            request["system"] = _texts(texts, "text") if shape == "parts" else texts[0]
        elif kind in OF_THE_MODEL:
            _assistant(messages).setdefault("content", []).append(_block(kind, texts))
        elif kind == "output":
            output = _texts(texts[1:], "text") if shape == "parts" else texts[1]
            result = {"type": "tool_result", "tool_use_id": f"call_{texts[0]}", "content": output}
            _blocks_of_user(messages).append(result)
        elif shape == "after outputs":
            _blocks_of_user(messages).extend(_texts(texts, "text"))
        else:
            content = _texts(texts, "text") if shape == "parts" else texts[0]
            messages.append({"role": "user", "content": content})
    return {**request, **({"tools": [{**TOOL, "strict": True}]} if story.tools else {}), **story.options}


def _blocks_of_user(messages: list[Json]) -> list[Json]:
    """Returns the blocks of the user's last message, which contains the results of all calls in a turn."""
    if messages[-1]["role"] == "assistant":
        messages.append({"role": "user", "content": list[Json]()})
    blocks: list[Json] = messages[-1]["content"]
    return blocks


def _block(kind: str, texts: Sequence[str]) -> Json:
    match kind:
        case "thoughts":
            return {"type": "thinking", "thinking": texts[0], "signature": "s"}
        case "assistant":
            return {"type": "text", "text": texts[0]}
        case _:
            used = {"name": "get_weather", "input": {"city": texts[1]}}
            return {"type": "tool_use", "id": f"call_{texts[0]}", **used}


_REQUESTS: dict[Api, Callable[[Story, Sequence[ShapedTurn]], Any]] = {
    "responses": _for_responses,
    "chat": _for_chat,
    "messages": _for_messages,
}
