"""Extracts the facts that the conditions of rules refer to from a request of any API.

Runs inside the server and imports only the standard library, so that unit tests can use it.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

APIS = {
    "/v1/responses": "responses",
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/messages": "messages",
    "/v1/chat/completions/batch": "chat",
    "/invocations": "chat",
}
_LIMITS = {
    "responses": ("max_output_tokens",),
    "chat": ("max_completion_tokens", "max_tokens"),
    "completions": ("max_tokens",),
    "messages": ("max_tokens",),
}
BY_MODEL = "assistant"
SYSTEM = ("system", "developer")
KEPT_RESPONSES = 4096

Item = dict[str, Any]
"""A part of a conversation in the common form of all APIs: `role` and `text`.

A call by the model also has the keys `call` (its id), `name` and `arguments`, and `output` if the server
executed the call. A tool's result also has the key `result` (the call's id).
"""


def facts(path: str, headers: Mapping[str, str], body: Item, earlier: list[Item]) -> dict[str, Any]:
    """The facts about a request that the conditions of rules refer to.

    Args:
        path: the path of the request, which identifies the API.
        headers: the headers of the request, with names in lower case.
        body: the body of the request.
        earlier: the earlier items that the request continues by its `previous_response_id`.
    """
    items = [*earlier, *conversation(body)]
    users = [item["text"] for item in items if item["role"] == "user"]
    last_model = max((i for i, item in enumerate(items) if item["role"] == BY_MODEL), default=-1)
    instructions = [_text(body.get("instructions")), _text(body.get("system"))]
    system = [*instructions, *(item["text"] for item in items if item["role"] in SYSTEM)]
    return {
        "api": APIS.get(path, path),
        "user": users[-1] if users else "",
        "system": "\n".join(filter(None, system)),
        "messages": [(item["role"], item["text"]) for item in items if "call" not in item],
        "tool_output": "\n".join(item["text"] for item in items[last_model + 1 :] if item["role"] == "tool"),
        "tool_results": list(_results(items)),
        "tools": [_tool_name(tool) for tool in _objects(body.get("tools"))],
        "tool_choice": _tool_choice(body),
        "parallel_tool_calls": _parallel(body),
        "stream": body.get("stream") is True,
        "format": _format(body),
        "model": str(body.get("model") or ""),
        "turn": _turns(items),
        "header": headers,
    }


def conversation(body: Item) -> list[Item]:
    """The items in a request's own body, without earlier ones that `previous_response_id` refers to."""
    content = body.get("input", body.get("messages", body.get("prompt")))
    if isinstance(content, str):
        content = [{"role": "user", "content": content}]
    return [item for part in _objects(content) for item in _items(part)]


def limited(path: str, body: Item, limit: int | None) -> Item:
    """The request with a limit on the tokens of its answer, but no lower than its own `min_tokens`.

    Args:
        path: the path of the request, which identifies the API and the key of the limit.
        body: the body of the request; a lower limit in it stays.
        limit: the largest number of tokens; None to leave the request unchanged.
    """
    if limit is None:
        return body
    keys = _LIMITS[APIS[path]]
    key = next((key for key in keys if body.get(key) is not None), keys[0])
    own, least = body.get(key), body.get("min_tokens")
    limit = max(limit, least) if isinstance(least, int) else limit
    return {**body, key: min(limit, own) if isinstance(own, int) else limit}


class Responses:
    """The server's latest responses, to find the conversation that a `previous_response_id` refers to."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[str, list[Item], list[Item]]] = OrderedDict()

    def before(self, body: Item) -> list[Item]:
        """The items of the conversation that a request continues; empty if it continues none."""
        items: list[Item] = []
        identifier = body.get("previous_response_id")
        while isinstance(identifier, str) and identifier in self._kept:
            identifier, request, answer = self._kept[identifier]
            items[:0] = [*request, *answer]
        return items

    def keep(self, body: Item, response: Item) -> None:
        """Keeps a response and its request; a later call for the same response may add its output."""
        identifier = response.get("id")
        if not isinstance(identifier, str):
            return
        answer = [item for part in _objects(response.get("output")) for item in _items(part)]
        previous, request, _ = self._kept.get(
            identifier, (str(body.get("previous_response_id") or ""), conversation(body), [])
        )
        # a response still without output is nevertheless a turn of the model
        self._kept[identifier] = (previous, request, answer or [{"role": BY_MODEL, "text": ""}])
        while len(self._kept) > KEPT_RESPONSES:
            self._kept.popitem(last=False)


class ResponseReader:
    """Finds the response objects in the bytes of an answer, streamed or not."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes, *, last: bool) -> Iterator[Item]:
        """The responses that the next chunk of the body completes.

        Args:
            last: whether `chunk` is the last chunk.
        """
        self._rest += chunk
        if self._rest.startswith(b"{"):
            yield from _responses(self._rest) if last else ()
            return
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            if line.startswith(b"data:") and b'"response":' in line:
                yield from _responses(line.removeprefix(b"data:"))


def _responses(content: bytes) -> Iterator[Item]:
    try:
        value = json.loads(content)
    except ValueError:
        return
    response = _object(_object(value).get("response")) or _object(value)
    if response.get("object") == "response":
        yield response


def _items(part: Item) -> Iterator[Item]:
    kind, role = str(part.get("type") or ""), str(part.get("role") or "")
    if role in ("tool", "function") or kind.endswith("_call_output"):
        yield _result(part.get("call_id", part.get("tool_call_id")), part.get("output", part.get("content")))
    elif kind.endswith("_call"):
        yield _call(part.get("call_id") or part.get("id"), part, part.get("output"))
    elif kind == "reasoning":
        yield {"role": BY_MODEL, "text": ""}
    elif role:
        yield from _of_message(role, part)


def _of_message(role: str, message: Item) -> Iterator[Item]:
    """The items of a message: Messages has calls and results as parts; Chat has calls in `tool_calls`."""
    parts = _objects(message.get("content"))
    results = [part for part in parts if part.get("type") == "tool_result"]
    uses = [part for part in parts if part.get("type") == "tool_use"]
    calls = _objects(message.get("tool_calls"))
    yield from (_result(part.get("tool_use_id"), part.get("content")) for part in results)
    if len(results) + len(uses) < len(parts) or not (results or uses):
        yield {"role": role, "text": _text(message.get("content"))}
    yield from (_call(part.get("id"), {**part, "arguments": part.get("input")}) for part in uses)
    yield from (_call(call.get("id"), _object(call.get("function"))) for call in calls)


def _call(identifier: Any, call: Item, output: Any = None) -> Item:
    arguments = call.get("arguments")
    made = {"role": BY_MODEL, "text": "", "call": identifier, "name": str(call.get("name") or "")}
    return {**made, "arguments": _written(arguments)} | ({} if output is None else {"output": _text(output)})


def _result(identifier: Any, output: Any) -> Item:
    return {"role": "tool", "text": _text(output), "result": identifier}


def _results(items: list[Item]) -> Iterator[dict[str, str]]:
    calls = {str(item["call"]): item for item in items if "call" in item}
    for item in items:
        if "output" in item:
            yield {"name": item["name"], "arguments": item["arguments"], "output": item["output"]}
        elif item["role"] == "tool":
            call = calls.get(str(item["result"]), {})
            made = {"name": call.get("name", ""), "arguments": call.get("arguments", "")}
            yield {**made, "output": item["text"]}


def _turns(items: list[Item]) -> int:
    by_model = [item["role"] == BY_MODEL for item in items]
    return sum(1 for i, turn in enumerate(by_model) if turn and not (i and by_model[i - 1]))


def _tool_choice(body: Item) -> str:
    """`auto`, `none` or `required` as in OpenAI's APIs, or the name of the only tool allowed."""
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        named = choice.get("name") or _object(choice.get("function")).get("name")
        choice = named or choice.get("mode") or choice.get("type")
    if not isinstance(choice, str):
        return "auto" if body.get("tools") else "none"
    return "required" if choice == "any" else choice


def _parallel(body: Item) -> bool:
    choice = _object(body.get("tool_choice"))
    return (
        body.get("parallel_tool_calls") is not False and choice.get("disable_parallel_tool_use") is not True
    )


def _format(body: Item) -> str:
    text, output = _object(body.get("text")), _object(body.get("output_config"))
    places = (
        text.get("format"),
        body.get("response_format"),
        output.get("format"),
        body.get("output_format"),
    )
    named = [_object(place).get("type") for place in places]
    return str(next(filter(None, named), "text"))


def _tool_name(tool: Item) -> str:
    named = _object(tool.get("function")) or tool
    return str(named.get("name") or tool.get("server_label") or tool.get("type") or "")


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in _objects(content))


def _written(arguments: Any) -> str:
    """Arguments as a JSON string; Anthropic's API sends them as an object."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False) if arguments is not None else ""


def _objects(value: Any) -> list[Item]:
    """The objects in a list; anything else, which vLLM refuses, is ignored."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _object(value: Any) -> Item:
    return value if isinstance(value, dict) else {}
