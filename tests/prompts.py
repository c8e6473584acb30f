"""Compares a server's prompts for conversations, over each API, with the model's own chat template.

The compared token ids are those that the engine received. The template is rendered outside the server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import pytest
from pydantic import Field

from tests.apis import APIS, PATHS, Api, Json, known_row
from tests.behaviours.tools import RESPONSES_TOOL
from tests.case_files import FOLDER
from tests.constraints import AS_JSON, PLAIN
from vllm_harness import known_defect
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.strict import StrictModel
from vllm_harness._scripted.book import Raw, ScriptBook
from vllm_harness._scripted.dialects import render
from vllm_harness._scripted.meaning import Meaning, Part, Reasoning, Text, ToolCall
from vllm_harness._server.remote import RemoteServer

AT_ONCE = 16
Turn = tuple[str, ...]
"""The kind of a turn, then its fields. Call: number, city, and the tool unless it is get_weather; custom tool
input (`written`): number and text; output: the number of the call, and texts; other kinds: texts.
"""
CALLS = ("call", "written")
OF_THE_MODEL = ("thoughts", "assistant", "call", "written")
WEATHER = {key: RESPONSES_TOOL[key] for key in ("name", "description", "parameters", "strict")}
TIDES = {**WEATHER, "name": "get_tides", "description": "Tides of a city"}
CUSTOM: Json = {"type": "custom", "name": "run_code", "description": "Runs Python"}
CUSTOM_AS_FUNCTION: Json = {
    "name": "run_code",
    "description": "Runs Python",
    "parameters": {
        "type": "object",
        "properties": {
            "input": {"type": "string", "description": "The freeform text payload for this tool."}
        },
        "required": ["input"],
        "additionalProperties": False,
    },
}
"""How vLLM describes a custom tool to a template that supports only functions; the wording is vLLM's."""
FORMAT: Json = {
    "type": "object",
    "properties": {"river": {"type": "string"}},
    "required": ["river"],
    "additionalProperties": False,
}


class Step(StrictModel):
    """A request, and the model's answer to it.

    Attributes:
        instructions, tools, tides, custom, effort, format, input, says: documented in cases/prompts.yaml.
        form: a Responses `input` with the same meaning as `input`.
    """

    instructions: str | None = None
    tools: bool = False
    tides: bool = False
    custom: bool = False
    effort: Literal["none", "low", "medium", "high"] | None = None
    format: bool = False
    input: tuple[Turn, ...]
    says: tuple[Turn, ...] = ()
    form: Any = None

    @property
    def functions(self) -> list[Json]:
        """The tools that the request offers."""
        return [WEATHER] * self.tools + [TIDES] * self.tides + [CUSTOM_AS_FUNCTION] * self.custom


class Conversation(StrictModel):
    """A row of cases/prompts.yaml; the comment in that file documents the fields."""

    id: str
    covers: tuple[str, ...]
    apis: tuple[Api, ...] = APIS
    only: Literal["harmony", "standard"] | None = None
    needs: tuple[str, ...] = ()
    known: dict[Api, str] = Field(default_factory=dict)
    known_of_route: dict[Api, str] = Field(default_factory=dict)
    steps: tuple[Step, ...]

    @property
    def turns(self) -> list[Turn]:
        """All turns of all steps, in order."""
        return [turn for step in self.steps for turn in (*step.input, *step.says)]

    @property
    def as_one(self) -> Conversation:
        """The conversation as one request that contains all turns."""
        last = self.steps[-1].model_copy(update={"input": tuple(self.turns), "says": ()})
        return self.model_copy(update={"steps": (last,)})

    def asked_by(self, name: str, form: Any) -> Conversation:
        """Returns the conversation with another Responses input in the last request."""
        last = self.steps[-1].model_copy(update={"form": form})
        return self.model_copy(update={"id": f"{self.id} ({name})", "steps": (*self.steps[:-1], last)})


Rendered = Callable[[Conversation], tuple[list[int], ...]]
"""Returns the prompts that a model's format allows for a conversation; only one format allows several."""


@cache
def conversations() -> tuple[Conversation, ...]:
    """Returns the rows of cases/prompts.yaml."""
    loaded = read_yaml(FOLDER / "prompts.yaml").data
    return tuple(Conversation.model_validate(row) for row in loaded)


def covered() -> pytest.MarkDecorator:
    """Returns a `covers` mark with the behaviours of all conversations."""
    return pytest.mark.covers(*dict.fromkeys(name for row in conversations() for name in row.covers))


def known_prompts(family: str, of: Literal["known", "known_of_route"] = "known") -> list[Any]:
    """Returns a pytest parameter for each prompt of an API (or render route) that a known defect affects."""
    return [
        known_row(known_defect(defect), api, row)
        for row in conversations()
        if row.only in (None, family)
        for api, defect in getattr(row, of).items()
    ]


def of_entry(server: RemoteServer) -> list[tuple[Api, Conversation]]:
    """Returns the conversations for the server's model entry that no known defect affects."""
    return [(api, row) for api, row in _asked(server) if api not in row.known]


def of_render_routes(server: RemoteServer) -> list[tuple[Api, Conversation]]:
    """Returns the conversations, as one request each, for the render routes, which store no responses."""
    return [
        (api, row.as_one)
        for api, row in _asked(server)
        if api not in row.known_of_route and (len(row.steps) > 1 or api not in row.known)
    ]


def _asked(server: RemoteServer) -> Iterator[tuple[Api, Conversation]]:
    family = "harmony" if server.entry.harmony else "standard"
    for row in conversations():
        if row.only in (None, family) and set(row.needs) <= set(server.entry.capabilities):
            yield from ((api, row) for api in row.apis)
            for form in _forms():
                if form["says"] == row.id and form.get("family", family) == family:
                    yield "responses", row.asked_by(form["id"], form["input"])


@cache
def _forms() -> tuple[Json, ...]:
    """Returns the inputs in `cases/responses_input.yaml` that are equivalent to a conversation."""
    return tuple(form for form in read_yaml(FOLDER / "responses_input.yaml").data if "says" in form)


@dataclass(frozen=True)
class Prompts:
    """Requests prompts from a server and compares them.

    Attributes:
        server: the server.
        rendered: returns the prompts for a conversation according to the model's own template.
    """

    server: RemoteServer
    rendered: Rendered

    def check(self, asked: Iterable[tuple[Api, Conversation]]) -> None:
        """Fails with a line for each conversation for which an API makes a wrong prompt."""
        self._check(asked, self._generated)

    def check_render_routes(self, asked: Iterable[tuple[Api, Conversation]]) -> None:
        """Checks the render routes, which make a prompt without generating."""
        self._check(asked, lambda api, row: self._render_route(api, row.steps[0]))

    def _check(
        self,
        asked: Iterable[tuple[Api, Conversation]],
        prompt: Callable[[Api, Conversation], list[int]],
    ) -> None:
        def compare(case: tuple[Api, Conversation]) -> str | None:
            api, row = case
            expected, got = self.rendered(row), prompt(api, row)
            return None if got in expected else f"{api}, {row.id}: {self.difference(expected[0], got)}"

        with ThreadPoolExecutor(AT_ONCE) as pool:
            wrong = [line for line in pool.map(compare, asked) if line]
        assert not wrong, "\n".join(wrong)

    def _generated(self, api: Api, row: Conversation) -> list[int]:
        """Returns the prompt of the last request, as the engine received it."""
        book = ScriptBook(self.server.endpoint, self.server.entry)
        previous: Json | None = None
        for step in row.steps:
            written = book.script(self._said(step), keep_prompt=True)
            previous = self._answer(api, step, book, previous)
        (prompt,) = book.prompts(written.name)
        assert previous is not None
        _check_shown(api, previous, prompt)
        book.verify()
        book.close()
        return prompt

    def _said(self, step: Step) -> Raw:
        """Returns the raw text that the model generates, without blank lines; JSON if a format is set."""
        says = step.says or ([("assistant", '{"river": "Nile"}')] if step.format else [])
        text = render(self.server.entry.dialect or "", meaning_of(says), constrained=True)
        return Raw(text.replace(PLAIN, AS_JSON) if step.format else text)

    def _answer(self, api: Api, step: Step, book: ScriptBook, previous: Json | None) -> Json:
        request = request_of(api, step)
        if previous is not None:
            request["previous_response_id"] = previous["id"]
            calls = [item["call_id"] for item in previous["output"] if item["type"] == "function_call"]
            outputs = [item for item in request["input"] if item.get("type") == "function_call_output"]
            for call_id, output in zip(calls, outputs, strict=False):
                output["call_id"] = call_id
        return self._post(PATHS[api], request, book.endpoint)

    def _render_route(self, api: Api, step: Step) -> list[int]:
        ids: list[int] = self._post(f"{PATHS[api]}/render", request_of(api, step))["token_ids"]
        return ids

    def _post(self, path: str, request: Json, at: Endpoint | None = None) -> Json:
        answer = (at or self.server.endpoint).post(path, json={"model": self.server.model, **request})
        assert answer.status_code == 200, f"{path}: HTTP {answer.status_code}: {answer.text[:300]}"
        return dict(answer.json())

    def difference(self, expected: Sequence[int], got: Sequence[int]) -> str:
        """Describes where two prompts differ."""
        at = next(
            (n for n, pair in enumerate(zip(expected, got, strict=False)) if pair[0] != pair[1]),
            min(len(expected), len(got)),
        )
        after, expected_text, actual_text = (
            self._text(ids) for ids in (got[max(0, at - 12) : at], expected[at : at + 40], got[at : at + 40])
        )
        return f"after {at} tokens, {after!r}: {expected_text!r} by the template, {actual_text!r} got"

    def _text(self, ids: Sequence[int]) -> str:
        return str(self._post("/detokenize", {"tokens": list(ids)})["prompt"])


def _check_shown(api: Api, answer: Json, prompt: list[int]) -> None:
    """Checks that an answer reports the prompt that the engine received."""
    counted = answer["usage"]["prompt_tokens" if api == "chat" else "input_tokens"]
    assert counted == len(prompt), f"{api}: usage has {counted} tokens of input, not {len(prompt)}"
    if api == "chat":
        assert answer["prompt_token_ids"] == prompt
    if api == "responses" and "tokens" in answer["input_messages"][0]:
        assert answer["input_messages"][0]["tokens"] == prompt


def chat_messages(turns: Iterable[Turn]) -> list[Json]:
    """Converts turns to Chat Completions messages; consecutive turns of the model become one message."""
    messages: list[Json] = []
    for kind, *texts in turns:
        if kind in OF_THE_MODEL:
            if not messages or messages[-1]["role"] != "assistant" or _is_full(messages[-1], kind):
                messages.append({"role": "assistant"})
            _add(messages[-1], kind, texts)
        elif kind == "output":
            content = _content(texts[1:], "text")
            messages.append({"role": "tool", "tool_call_id": f"call_{texts[0]}", "content": content})
        else:
            messages.append({"role": kind, "content": _content(texts, "text")})
    return messages


def _is_full(message: Json, kind: str) -> bool:
    return "tool_calls" in message if kind not in CALLS else False


def _add(message: Json, kind: str, texts: Sequence[str]) -> None:
    if kind in CALLS:
        function = {"name": called((kind, *texts)), "arguments": arguments(texts[1], kind)}
        call = {"id": f"call_{texts[0]}", "type": "function", "function": function}
        message.setdefault("tool_calls", []).append(call)
    else:
        message["content" if kind == "assistant" else "reasoning"] = texts[0]


def called(turn: Turn) -> str:
    """Returns the name of the tool that a call names."""
    if turn[0] == "written":
        return str(CUSTOM["name"])
    return turn[3] if len(turn) > 3 else str(WEATHER["name"])


def arguments(text: str, kind: str = "call") -> str:
    """Returns the arguments of a call as a model writes them: the city, or the input of a custom tool."""
    return json.dumps({"city" if kind == "call" else "input": text}, ensure_ascii=False)


def _content(texts: Sequence[str], part_type: str) -> Any:
    return texts[0] if len(texts) == 1 else [{"type": part_type, "text": text} for text in texts]


def meaning_of(says: Sequence[Turn]) -> Meaning:
    """Converts the model's turns to a `Meaning`; if there are none, it has a short text."""

    def part(turn: Turn) -> Part:
        match turn:
            case ("call", _, city, *_):
                return ToolCall(called(turn), {"city": city})
            case ("thoughts", text):
                return Reasoning(text)
            case (_, text):
                return Text(text)
            case _:
                raise ValueError(f"the model cannot say {turn}")

    return Meaning(tuple(map(part, says or (("assistant", "Fine."),))))


def request_of(api: Api, step: Step) -> Json:
    """Returns the body of a request to an API, without the model."""
    return _REQUESTS[api](step)


def _for_responses(step: Step) -> Json:
    items = step.form if step.form is not None else list(_items(step.input))
    request: Json = {"input": items, "enable_response_messages": True}
    if step.instructions:
        request["instructions"] = step.instructions
    if step.functions:
        request["tools"] = [
            CUSTOM if function is CUSTOM_AS_FUNCTION else {"type": "function", **function}
            for function in step.functions
        ]
    if step.format:
        request["text"] = {"format": {"type": "json_schema", "name": "river", "schema": FORMAT}}
    if step.effort:
        request["reasoning"] = {"effort": step.effort}
    return request


def _items(turns: Sequence[Turn]) -> Iterator[Json]:
    """Converts turns to Responses items; the type of an output matches the type of its call."""
    written = {turn[1] for turn in turns if turn[0] == "written"}
    for turn in turns:
        item = _item(turn)
        if turn[0] == "output" and turn[1] in written:
            item["type"] = "custom_tool_call_output"
        yield item


def _item(turn: Turn) -> Json:
    kind, *texts = turn
    match kind:
        case "thoughts":
            thoughts = [{"type": "reasoning_text", "text": texts[0]}]
            return {"type": "reasoning", "id": "rs_1", "summary": [], "content": thoughts}
        case "assistant":
            words = [{"type": "output_text", "text": texts[0], "annotations": list[Json]()}]
            message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
            return {**message, "content": words}
        case "call":
            call = {"call_id": f"call_{texts[0]}", "name": called(turn), "arguments": arguments(texts[1])}
            return {"type": "function_call", **call}
        case "written":
            call = {"call_id": f"call_{texts[0]}", "name": called(turn), "input": texts[1]}
            return {"type": "custom_tool_call", "id": "ctc_1", **call}
        case "output":
            output = _content(texts[1:], "input_text")
            return {"type": "function_call_output", "call_id": f"call_{texts[0]}", "output": output}
        case _:
            return {"role": kind, "content": _content(texts, "input_text")}


def _for_chat(step: Step) -> Json:
    request: Json = {"messages": chat_messages(step.input), "return_token_ids": True}
    if step.functions:
        request["tools"] = [{"type": "function", "function": function} for function in step.functions]
    if step.format:
        schema = {"name": "river", "schema": FORMAT}
        request["response_format"] = {"type": "json_schema", "json_schema": schema}
    if step.effort:
        request["reasoning_effort"] = step.effort
    return request


def _for_messages(step: Step) -> Json:
    messages: list[Json] = []
    request: Json = {"max_tokens": 50, "messages": messages}
    for message in chat_messages(step.input):
        if message["role"] == "system":
            request["system"] = message["content"]
        else:
            messages.append(_for_anthropic(message))
    if step.functions:
        request["tools"] = [_tool_of_messages(function) for function in step.functions]
    if step.effort == "none":
        request["thinking"] = {"type": "disabled"}
    elif step.effort:
        request["output_config"] = {"effort": step.effort}
    if step.format:
        config = request.setdefault("output_config", {})
        config["format"] = {"type": "json_schema", "schema": FORMAT}
    return request


def _tool_of_messages(function: Json) -> Json:
    return {{"parameters": "input_schema"}.get(key, key): value for key, value in function.items()}


def _for_anthropic(message: Json) -> Json:
    match message["role"]:
        case "tool":
            result = {"tool_use_id": message["tool_call_id"], "content": message["content"]}
            return {"role": "user", "content": [{"type": "tool_result", **result}]}
        case "assistant":
            return {"role": "assistant", "content": list(_blocks(message))}
        case _:
            return message


def _blocks(message: Json) -> Iterable[Json]:
    if "reasoning" in message:
        yield {"type": "thinking", "thinking": message["reasoning"], "signature": "s"}
    if "content" in message:
        yield {"type": "text", "text": message["content"]}
    for call in message.get("tool_calls", ()):
        function = call["function"]
        used = {"id": call["id"], "name": function["name"], "input": json.loads(function["arguments"])}
        yield {"type": "tool_use", **used}


_REQUESTS: dict[Api, Callable[[Step], Json]] = {
    "responses": _for_responses,
    "chat": _for_chat,
    "messages": _for_messages,
}
