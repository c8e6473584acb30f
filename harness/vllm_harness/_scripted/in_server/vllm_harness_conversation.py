"""What a request consists of, over any of the APIs: the facts that the conditions of rules are about.

Runs inside the server, imports nothing but the standard library, so that it is the same in a test.
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
"""A part of a conversation, whichever API wrote it: `role` and `text`.

A call by the model has `call` (its id), `name` and `arguments`, and `output` where the server made the call.
A tool's result has `result` (the call's id).
"""


def facts(path: str, headers: Mapping[str, str], body: Item, earlier: list[Item]) -> dict[str, Any]:
    """What the conditions of rules refer to.

    Args:
        path: of the request, which says the API.
        headers: of the request, their names in lower case.
        body: of the request.
        earlier: what stands before it, by `previous_response_id`.
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
    """The items of a request, without what the server keeps of earlier ones."""
    given = body.get("input", body.get("messages", body.get("prompt")))
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    return [item for each in _objects(given) for item in _items(each)]


def limited(path: str, body: Item, limit: int | None) -> Item:
    """A request whose answer has no more tokens than a limit, nor fewer than it wants at least.

    Args:
        path: of the request, which says the API, and so the key for it.
        body: of the request; its own limit counts where that is lower.
        limit: how many tokens; None for the request as it is.
    """
    if limit is None:
        return body
    keys = _LIMITS[APIS[path]]
    key = next((key for key in keys if body.get(key) is not None), keys[0])
    own, least = body.get(key), body.get("min_tokens")
    limit = max(limit, least) if isinstance(least, int) else limit
    return {**body, key: min(limit, own) if isinstance(own, int) else limit}


class Responses:
    """What the server keeps of responses, so that `previous_response_id` stands for a conversation."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[str, list[Item], list[Item]]] = OrderedDict()

    def before(self, body: Item) -> list[Item]:
        """The items before a request."""
        found: list[Item] = []
        identifier = body.get("previous_response_id")
        while isinstance(identifier, str) and identifier in self._kept:
            identifier, asked, answered = self._kept[identifier]
            found[:0] = [*asked, *answered]
        return found

    def keep(self, body: Item, response: Item) -> None:
        """Keeps a response, and what was asked; once more, with its output, where that came later."""
        identifier = response.get("id")
        if not isinstance(identifier, str):
            return
        answered = [item for each in _objects(response.get("output")) for item in _items(each)]
        previous, asked, _ = self._kept.get(
            identifier, (str(body.get("previous_response_id") or ""), conversation(body), [])
        )
        # until its output is known it is a turn of the model nevertheless
        self._kept[identifier] = (previous, asked, answered or [{"role": BY_MODEL, "text": ""}])
        while len(self._kept) > KEPT_RESPONSES:
            self._kept.popitem(last=False)


class ResponseReader:
    """Finds the response objects in the bytes of an answer, streamed or not."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes, *, last: bool) -> Iterator[Item]:
        """The responses that are complete with a further part of the body.

        Args:
            last: whether nothing follows.
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
    found = _object(_object(value).get("response")) or _object(value)
    if found.get("object") == "response":
        yield found


def _items(each: Item) -> Iterator[Item]:
    kind, role = str(each.get("type") or ""), str(each.get("role") or "")
    if role in ("tool", "function") or kind.endswith("_call_output"):
        yield _result(each.get("call_id", each.get("tool_call_id")), each.get("output", each.get("content")))
    elif kind.endswith("_call"):
        yield _call(each.get("call_id") or each.get("id"), each, each.get("output"))
    elif kind == "reasoning":
        yield {"role": BY_MODEL, "text": ""}
    elif role:
        yield from _of_message(role, each)


def _of_message(role: str, message: Item) -> Iterator[Item]:
    """A message of any API: Anthropic's calls and results are parts of it, Chat's calls stand beside it."""
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
    """`auto`, `none` or `required`, or the name of the one tool, in the words of OpenAI's APIs."""
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
    """Arguments as text: the object that Anthropic's API has is written as the other APIs write it."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False) if arguments is not None else ""


def _objects(value: Any) -> list[Item]:
    """The objects of a list; a client may send anything, and vLLM refuses it."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _object(value: Any) -> Item:
    return value if isinstance(value, dict) else {}
