"""ASGI middleware: finds the script for a request and puts its token ids into `vllm_xargs`.

So the client's call stays the plain SDK call, and any client in any language can run against it. Only the
user who runs the server may POST rules to `/vllm-harness/books/NAME`, or PUT them in the place of those that
it has, and GET `/vllm-harness/log/N`, the requests after the N-th. A request names its book in the header
`x-vllm-harness-book`, or gets the book `default`. Runs inside the server, imports nothing of the harness
beyond this folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
from typing import Any

import vllm_harness_asgi as asgi
import vllm_harness_conversation as conversations
import vllm_harness_exchanges as exchanges
import vllm_harness_names as names
import vllm_harness_steps as steps
import vllm_harness_uses as uses
from vllm_harness_served import Log, MatchedRule, QuoteError, ServedBook, quoted

RESPONSES = "/v1/responses"
LOOK_EVERY_S = 0.01  # until then the engine goes on with what was refused
SHOWN_ALLOWED = 8


class ScriptMiddleware:
    """Wraps vLLM's application (`--middleware vllm_harness_middleware.ScriptMiddleware`)."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.books: dict[str, ServedBook] = {names.DEFAULT_BOOK: ServedBook()}
        self.responses = conversations.Responses()
        self.log = Log()
        self.exchanges = exchanges.Exchanges()
        self.steps: dict[str, steps.Steps] = {}
        self.numbers = itertools.count(1)
        self.texts: dict[int, str] = {}
        self.refused = uses.RefusedUses()
        self.running: dict[str, asyncio.Event] = {}
        self.watcher: asyncio.Task[None] | None = None
        logging.getLogger("uvicorn.access").addFilter(
            lambda record: names.CONTROL_PATH not in record.getMessage()
        )

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Handles a request."""
        path = asgi.route(scope)
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif path.startswith(names.CONTROL_PATH) and not asgi.of_this_user(scope):
            await asgi.refuse_other_user(send)
        elif path.startswith(names.BOOKS_PATH):
            await self._control(scope["method"], path.removeprefix(names.BOOKS_PATH), receive, send)
        elif path.startswith(names.RESET_PATH):
            self._book(path.removeprefix(names.RESET_PATH)).reset()
            await asgi.send_json(send, 200, {})
        elif path == names.EXCHANGES_PATH:
            await self._tell(scope, receive, send)
        elif path.startswith(names.STEPS_PATH):
            taken = self.steps.pop(path.removeprefix(names.STEPS_PATH), steps.Steps())
            await asgi.send_json(send, 200, vars(taken))
        elif path.startswith(names.LOG_PATH):
            after = path.removeprefix(names.LOG_PATH)
            await asgi.send_json(send, 200, {"requests": self.log.after(int(after or 0))})
        elif scope["method"] == "POST" and path in conversations.APIS:
            await self._generate(scope, path, receive, send)
        elif path.startswith(f"{RESPONSES}/"):
            await self.app(scope, receive, self._keeping({}, send))
        else:
            await self.app(scope, receive, send)

    async def _control(self, method: str, name: str, receive: Any, send: Any) -> None:
        if method in ("POST", "PUT"):
            posted = json.loads(await asgi.body(receive))
            if method == "POST":
                self._book(name).add(posted["rules"])
            else:
                self._book(name).replace(posted["rules"], posted.get("source", ""))
        book = self.books.get(name, ServedBook())
        if method == "DELETE":
            self.books.pop(name, None)
        await asgi.send_json(send, 200, book.report())

    async def _tell(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        async def decode(ids: list[int]) -> str:
            return str((await self._asked(scope, "/detokenize", {"tokens": ids})).get("prompt", ""))

        asked = json.loads(await asgi.body(receive))["names"]
        told = {name: await self.exchanges.generations(name, decode) for name in asked}
        await asgi.send_json(send, 200, {"exchanges": told})

    def _book(self, name: str) -> ServedBook:
        return self.books.setdefault(name, ServedBook())

    async def _generate(self, scope: dict[str, Any], path: str, receive: Any, send: Any) -> None:
        raw = await asgi.body(receive)
        body = asgi.json_object(raw)
        if body is None:
            await self.app(scope, asgi.replay(raw, receive), send)
            return
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        name = headers.get(names.BOOK_HEADER, names.DEFAULT_BOOK)
        facts = conversations.facts(path, headers, body, self.responses.before(body))
        book = self._book(name)
        taken = book.take(facts)
        takes, reason = await self._said(scope, facts, taken)
        rule = taken.rule if isinstance(taken, MatchedRule) else {}
        use = {
            "id": f"{os.getpid()}-{next(self.numbers)}",
            "book": name,
            "script": rule.get("name"),
            "path": path,
            "reason": reason,
            "no_script": _no_script(name, facts, reason) if reason and not rule else reason,
            "status": None,
            "keep_prompt": bool(rule.get("keep_prompt")),
        }
        kept = rule.get("keep_uses", True)
        if kept:
            book.uses.append(use)
        exchange = headers.get(names.EXCHANGE_HEADER)
        if exchange:
            by_choice = bool(rule.get("by_choice"))
            self.exchanges.keep(exchange, exchanges.NamedRequest(use["id"], takes, by_choice))
            rule = {**rule, "keep_prompt": True}
        changed = json.dumps(_with_script(body, use, takes, rule)).encode()
        keeping = self._keeping(body, send) if path == RESPONSES else send
        running = self._run(scope, asgi.replay(changed, receive), keeping, use)
        if noted := headers.get(names.STEPS_HEADER):
            running = steps.take(running, self.steps.setdefault(noted, steps.Steps()))
        try:
            await running
        finally:
            self.log.add(use, raw, body, facts)
            if not kept:
                uses.forget(use["id"])

    async def _said(
        self, scope: dict[str, Any], facts: dict[str, Any], taken: MatchedRule | str
    ) -> tuple[list[list[int]], str | None]:
        """The token ids of each take, or why there are none."""
        if not isinstance(taken, MatchedRule):
            return [], taken
        try:
            return [await self._ids(scope, take, taken.groups, facts["model"]) for take in taken.takes], None
        except QuoteError as error:
            return [], f"script {taken.rule['name']!r} cannot be said: {error}"

    def _keeping(self, body: dict[str, Any], send: Any) -> Any:
        """A `send` that keeps the responses that pass, before a client can refer to them."""
        reader = conversations.ResponseReader()

        async def keep(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.body":
                for response in reader.feed(message.get("body", b""), last=not message.get("more_body")):
                    self.responses.keep(body, response)
            await send(message)

        return keep

    async def _ids(self, scope: dict[str, Any], take: Any, groups: dict[str, str], model: str) -> list[int]:
        """The token ids of a take; those of a template are made by vLLM's own /tokenize."""
        if isinstance(take, list):
            return take
        prompt = {"model": model, "prompt": quoted(take, groups), "add_special_tokens": False}
        tokens = (await self._asked(scope, "/tokenize", prompt)).get("tokens")
        if not tokens:
            raise QuoteError("vLLM does not tokenize it")
        return [int(token) for token in tokens]

    async def _run(self, scope: dict[str, Any], receive: Any, send: Any, use: dict[str, Any]) -> None:
        refused = self.running[use["id"]] = asyncio.Event()
        if self.watcher is None or self.watcher.done():
            self.watcher = steps.of_no_request(self._watch())
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
            if use["id"] in self.refused.now():
                refused.set()
                raise OSError("the script was refused")
            if message["type"] == "http.response.start":
                started, use["status"] = True, message["status"]
            await send(message)

        error: BaseException | None = None
        try:
            await self.app(asgi.with_length_unknown(scope), receive_or_refuse, send_unless_refused)
        except BaseException as caught:
            error = caught
        finally:
            del self.running[use["id"]]
        if refusal := use["id"] in self.refused.now() and uses.refusal(use["id"]):
            allowed = [await self._decoded(scope, token) for token in refusal["allowed"][:SHOWN_ALLOWED]]
            wanted = None if refusal["token"] is None else await self._decoded(scope, refusal["token"])
            await _send_refusal(send, use, _refusal_text(use, refusal, wanted, allowed), started)
        elif error is not None:
            if use["no_script"]:  # vLLM 0.22 raises the refusal, and answers it further out
                use["status"] = 400
            raise error

    async def _watch(self) -> None:
        while self.running:
            for use in self.refused.now() & self.running.keys():
                self.running[use].set()
            await asyncio.sleep(LOOK_EVERY_S)

    async def _decoded(self, scope: dict[str, Any], token: int) -> str:
        """A token's text, by vLLM's own /detokenize, asked once for each: most refusals name the same."""
        if token not in self.texts:
            answer = await self._asked(scope, "/detokenize", {"tokens": [token]})
            if "prompt" not in answer:
                return f"token {token}"
            self.texts[token] = str(answer["prompt"])
        return self.texts[token]

    async def _asked(self, scope: dict[str, Any], path: str, question: dict[str, Any]) -> dict[str, Any]:
        """What vLLM itself answers to a request of ours; empty where that is no object."""
        answer = b""

        async def collect(message: dict[str, Any]) -> None:
            nonlocal answer
            answer += message.get("body", b"")

        body = json.dumps(question).encode()
        headers = [(b"content-type", b"application/json")]
        place = {"path": path, "raw_path": path.encode(), "query_string": b""}
        inner = {**scope, **place, "method": "POST", "headers": headers}
        await self.app(inner, asgi.replay(body, asyncio.Event().wait), collect)
        return asgi.json_object(answer) or {}


def _no_script(book: str, facts: dict[str, Any], reason: str) -> str:
    return (
        f"no script matches this request: book {book!r} has no rule left for it "
        f"(last user message {facts['user'][:80]!r}, tools {facts['tools']}, turn {facts['turn']}); {reason}"
    )


def _with_script(
    body: dict[str, Any], use: dict[str, Any], takes: list[list[int]], rule: dict[str, Any]
) -> dict[str, Any]:
    args: dict[str, Any] = {**(body.get("vllm_xargs") or {}), uses.USE: use["id"]}
    seed = body.get("seed") if isinstance(body.get("seed"), int) else 0
    if use["no_script"]:
        return {**body, "vllm_xargs": {**args, uses.NO_SCRIPT: use["no_script"]}}
    args |= {
        uses.IDS: [token for take in takes for token in take],
        uses.LENGTHS: [len(take) for take in takes],
        uses.BY_CHOICE: int(bool(rule.get("by_choice"))),
        uses.SEED: seed,
        uses.KEEP_PROMPT: int(bool(rule.get("keep_prompt"))),
    }
    limited = conversations.limited(use["path"], body, rule.get("limit"))
    many = isinstance(body.get("n"), int) and body["n"] > 1
    return {**limited, "vllm_xargs": args, **({"seed": seed} if many else {})}


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
