"""ASGI middleware: finds the script for a request and puts its token ids into `vllm_xargs`.

So the client's call stays the plain SDK call, and any client in any language can run against it. Books of
rules are posted to `/vllm-harness/books/NAME`, by the user who runs the server; a request names its book in
the header `x-vllm-harness-book`, or gets the book `default`. Runs inside the server, imports nothing of the
harness beyond this folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
from collections.abc import Iterator
from typing import Any

import vllm_harness_asgi as asgi
import vllm_harness_names as names
import vllm_harness_uses as uses

HEADER = names.BOOK_HEADER.encode()
GENERATING = (
    *("/v1/responses", "/v1/chat/completions", "/v1/completions", "/v1/messages"),
    *("/v1/chat/completions/batch", "/invocations"),
)
LOOK_EVERY_S = 0.1
SHOWN_ALLOWED = 8
RESPONSE_ID = re.compile(rb'"id"\s*:\s*"(resp_[^"]+)"')


class ServedBook:
    """Rules in order: each has the conditions of a request, and what the model generates for it."""

    def __init__(self, rules: list[dict[str, Any]]) -> None:
        self.rules = rules
        self.uses: list[dict[str, Any]] = []

    def take(self, facts: dict[str, Any]) -> dict[str, Any] | None:
        """The first rule that matches and is not used up."""
        for rule in self.rules:
            if rule.get("left") != 0 and _matches(rule.get("when") or {}, facts):
                if rule.get("left"):
                    rule["left"] -= 1
                return rule
        return None

    def report(self) -> dict[str, Any]:
        """The rules that are left, and the state of each use."""
        return {
            "left": [rule["name"] for rule in self.rules if rule.get("left")],
            "uses": [{**use, "generations": uses.read_statuses(use["id"])} for use in self.uses],
        }


class ScriptMiddleware:
    """Wraps vLLM's application (`--middleware vllm_harness_middleware.ScriptMiddleware`)."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.books: dict[str, ServedBook] = {names.DEFAULT_BOOK: ServedBook([])}
        self.depths: dict[str, int] = {}
        self.numbers = itertools.count(1)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Handles a request."""
        path = scope.get("path", "")
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif path.startswith(names.BOOKS_PATH) and not asgi.of_this_user(scope):
            await asgi.refuse_other_user(send)
        elif path.startswith(names.BOOKS_PATH):
            await self._control(scope["method"], path.removeprefix(names.BOOKS_PATH), receive, send)
        elif scope["method"] == "POST" and path in GENERATING:
            await self._generate(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _control(self, method: str, name: str, receive: Any, send: Any) -> None:
        if method == "POST":
            rules = json.loads(await asgi.body(receive))["rules"]
            self.books.setdefault(name, ServedBook([])).rules.extend(rules)
        elif method == "DELETE":
            self.books.pop(name, None)
        book = self.books.get(name)
        await asgi.send_json(send, 200, book.report() if book else {"left": [], "uses": []})

    async def _generate(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        raw = await asgi.body(receive)
        body = asgi.json_object(raw)
        if body is None:
            await self.app(scope, asgi.replay(raw, receive), send)
            return
        name = dict(scope["headers"]).get(HEADER, names.DEFAULT_BOOK.encode()).decode("latin-1")
        book = self.books.setdefault(name, ServedBook([]))
        facts = _facts(body, self.depths)
        rule = book.take(facts)
        use = {
            "id": f"{os.getpid()}-{next(self.numbers)}",
            "script": rule["name"] if rule else None,
            "path": scope["path"],
            "no_script": None if rule else _no_script(name, facts),
            "status": None,
        }
        book.uses.append(use)
        changed = json.dumps(_with_script(body, use, rule)).encode()
        await self._run(scope, asgi.replay(changed, receive), send, use, facts["turn"])

    async def _run(
        self, scope: dict[str, Any], receive: Any, send: Any, use: dict[str, Any], depth: int
    ) -> None:
        refused = asyncio.Event()
        watcher = asyncio.create_task(_watch(use["id"], refused))
        started = False

        async def receive_or_refuse() -> dict[str, Any]:
            if refused.is_set():
                return {"type": "http.disconnect"}
            pending = asyncio.ensure_future(receive())
            waiting = asyncio.ensure_future(refused.wait())
            done, _ = await asyncio.wait({pending, waiting}, return_when=asyncio.FIRST_COMPLETED)
            for task in (pending, waiting):
                if task not in done:
                    task.cancel()
            return pending.result() if pending in done else {"type": "http.disconnect"}

        async def send_unless_refused(message: dict[str, Any]) -> None:
            nonlocal started
            if not refused.is_set() and uses.refusal(use["id"]):
                refused.set()
            if refused.is_set():
                raise OSError("the script was refused")
            if message["type"] == "http.response.start":
                started, use["status"] = True, message["status"]
            elif found := RESPONSE_ID.search(message.get("body", b"")[:4096]):
                self.depths.setdefault(found.group(1).decode(), depth + 1)
            await send(message)

        error: BaseException | None = None
        try:
            await self.app(asgi.with_length_unknown(scope), receive_or_refuse, send_unless_refused)
        except BaseException as caught:
            error = caught
        finally:
            watcher.cancel()
        if refusal := uses.refusal(use["id"]):
            allowed = [await self._decoded(scope, token) for token in refusal["allowed"][:SHOWN_ALLOWED]]
            wanted = None if refusal["token"] is None else await self._decoded(scope, refusal["token"])
            await _send_refusal(send, use, _refusal_text(use, refusal, wanted, allowed), started)
        elif error is not None:
            raise error

    async def _decoded(self, scope: dict[str, Any], token: int) -> str:
        """A token's text, by vLLM's own /detokenize."""
        answer = b""

        async def collect(message: dict[str, Any]) -> None:
            nonlocal answer
            answer += message.get("body", b"")

        body = json.dumps({"tokens": [token]}).encode()
        headers = [(b"content-type", b"application/json")]
        path = {"path": "/detokenize", "raw_path": b"/detokenize", "query_string": b""}
        inner = {**scope, **path, "method": "POST", "headers": headers}
        await self.app(inner, asgi.replay(body, asyncio.Event().wait), collect)
        try:
            return str(json.loads(answer)["prompt"])
        except (ValueError, KeyError):
            return f"token {token}"


def _no_script(book: str, facts: dict[str, Any]) -> str:
    return (
        f"no script matches this request: book {book!r} has no rule left for it "
        f"(last user message {facts['user'][:80]!r}, tools {facts['tools']}, turn {facts['turn']})"
    )


def _with_script(body: dict[str, Any], use: dict[str, Any], rule: dict[str, Any] | None) -> dict[str, Any]:
    args: dict[str, Any] = {**(body.get("vllm_xargs") or {}), uses.USE: use["id"]}
    seed = body.get("seed") if isinstance(body.get("seed"), int) else 0
    if rule is None:
        return {**body, "vllm_xargs": {**args, uses.NO_SCRIPT: use["no_script"]}}
    takes = rule["takes"]
    args |= {
        uses.IDS: [token for take in takes for token in take],
        uses.LENGTHS: [len(take) for take in takes],
        uses.BY_CHOICE: int(bool(rule.get("by_choice"))),
        uses.SEED: seed,
    }
    many = isinstance(body.get("n"), int) and body["n"] > 1
    return {**body, "vllm_xargs": args, **({"seed": seed} if many else {})}


def _facts(body: dict[str, Any], depths: dict[str, int]) -> dict[str, Any]:
    """What the conditions of rules refer to, for a request of any API."""
    items = body.get("input", body.get("messages", body.get("prompt")))
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    items = list(_with_results(_objects(items)))
    users = [_text(item.get("content")) for item in items if item.get("role") == "user"]
    last_model = max((i for i, item in enumerate(items) if _by_model(item)), default=-1)
    outputs = [
        _text(item.get("output", item.get("content")))
        for item in items[last_model + 1 :]
        if item.get("role") == "tool" or str(item.get("type", "")).endswith("_call_output")
    ]
    turn = sum(1 for i, item in enumerate(items) if _by_model(item) and not (i and _by_model(items[i - 1])))
    return {
        "user": users[-1] if users else "",
        "tool_output": "\n".join(outputs),
        "tools": [_tool_name(tool) for tool in _objects(body.get("tools"))],
        "model": str(body.get("model") or ""),
        "turn": turn + depths.get(str(body.get("previous_response_id")), 0),
    }


def _objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; a client may send anything, and vLLM refuses it."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _with_results(items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The items, with Anthropic's tool results, which are parts of a user message, as separate items."""
    for item in items:
        content = item.get("content")
        parts = content if isinstance(content, list) else []
        results = [part for part in parts if isinstance(part, dict) and part.get("type") == "tool_result"]
        yield from ({"role": "tool", "content": result.get("content")} for result in results)
        if not results or len(results) < len(parts):
            yield item


def _by_model(item: dict[str, Any]) -> bool:
    return item.get("role") == "assistant" or item.get("type") in {"function_call", "reasoning", "mcp_call"}


def _tool_name(tool: dict[str, Any]) -> str:
    function = tool.get("function")
    named = function if isinstance(function, dict) else tool
    return str(named.get("name") or tool.get("server_label") or tool.get("type") or "")


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def _matches(when: dict[str, Any], facts: dict[str, Any]) -> bool:
    return all(
        re.search(pattern, facts[name]) is not None
        for name in ("user", "tool_output", "model")
        if (pattern := when.get(name)) is not None
    ) and (
        set(when.get("tools") or ()) <= set(facts["tools"])
        and ("turn" not in when or when["turn"] == facts["turn"])
    )


async def _watch(use: str, refused: asyncio.Event) -> None:
    while not uses.refusal(use):
        await asyncio.sleep(LOOK_EVERY_S)
    refused.set()


def _refusal_text(
    use: dict[str, Any], refusal: dict[str, Any], wanted: str | None, allowed: list[str]
) -> str:
    if use["no_script"]:
        return str(use["no_script"])
    place = f"script {use['script']!r} was refused at token {refusal['position']} of {refusal['length']}"
    if wanted is None:
        return f"{place}: it has no take for this generation"
    more = refusal["allowed_count"] - len(allowed)
    others = ", ".join(map(repr, allowed)) + (f" and {more} more" if more > 0 else "")
    return f"{place}: a grammar or limit of the request does not allow {wanted!r}; allowed instead: {others}"


async def _send_refusal(send: Any, use: dict[str, Any], message: str, started: bool) -> None:
    # vLLM's Python front end refuses a request without a script itself, also with 400
    status, code = (400, names.NO_SCRIPT) if use["no_script"] else (422, names.SCRIPT_REFUSED)
    error = asgi.error(message, code)
    if not started:
        use["status"] = status
        await asgi.send_json(send, status, {"error": error})
        return
    event = json.dumps({"type": "error", "error": error, **error, "sequence_number": -1})
    data = f"event: error\ndata: {event}\n\n".encode()
    with contextlib.suppress(Exception):
        await send({"type": "http.response.body", "body": data, "more_body": False})
