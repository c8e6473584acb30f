"""ASGI middleware: finds the script for a request and puts its token ids into `vllm_xargs`.

So clients send ordinary requests, and any client in any language can use the server. Only the user who runs
the server may add rules to a book (POST `/vllm-harness/books/NAME`), replace its rules (PUT), and get the
requests after the N-th (GET `/vllm-harness/log/N`). A request names its book in the header
`x-vllm-harness-book`; without the header, the book `default` answers it. Runs inside the server and imports
nothing from the harness outside this folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import logging
import os
from typing import Any

import vllm_harness_asgi as asgi
import vllm_harness_conversation as conversations
import vllm_harness_deliveries as deliveries
import vllm_harness_exchanges as exchanges
import vllm_harness_names as names
import vllm_harness_steps as steps
import vllm_harness_uses as uses
from vllm_harness_served import Log, MatchedRule, QuoteError, ServedBook, quoted

RESPONSES = "/v1/responses"
POLL_S = 0.01  # the interval between checks for refused requests, which the engine continues until then
SHOWN_ALLOWED = 8


class ScriptMiddleware:
    """Wraps vLLM's application (`--middleware vllm_harness_middleware.ScriptMiddleware`).

    Args:
        in_vllm: whether the application is vLLM's own, in this process.
    """

    def __init__(self, app: Any, *, in_vllm: bool = True) -> None:
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
        self.holds_deliveries = in_vllm
        if in_vllm:
            deliveries.install()
        logging.getLogger("uvicorn.access").addFilter(
            lambda record: names.CONTROL_PATH not in record.getMessage()
        )

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answers the harness's own requests; forwards all others to vLLM, with a script if one matches."""
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
            await self._send_exchanges(scope, receive, send)
        elif path.startswith(names.STEPS_PATH):
            measured = self.steps.pop(path.removeprefix(names.STEPS_PATH), steps.Steps())
            await asgi.send_json(send, 200, vars(measured))
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

    async def _send_exchanges(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        decode = functools.partial(self._decoded, scope)
        requested = json.loads(await asgi.body(receive))["names"]
        results = {name: await self.exchanges.generations(name, decode) for name in requested}
        await asgi.send_json(send, 200, {"exchanges": results})

    def _book(self, name: str) -> ServedBook:
        return self.books.setdefault(name, ServedBook())

    async def _generate(self, scope: dict[str, Any], path: str, receive: Any, send: Any) -> None:
        raw, body = await asgi.json_body(self.app, scope, receive, send)
        if body is None:
            return
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        name = headers.get(names.BOOK_HEADER, names.DEFAULT_BOOK)
        facts = conversations.facts(path, headers, body, self.responses.before(body))
        book = self._book(name)
        match = book.take(facts)
        takes, reason = await self._takes(scope, facts, match)
        rule = match.rule if isinstance(match, MatchedRule) else {}
        use = {
            "id": f"{os.getpid()}-{next(self.numbers)}",
            "book": name,
            "script": rule.get("name"),
            "path": path,
            "reason": reason,
            "no_script": _no_script(name, facts, reason) if reason and not rule else reason,
            "status": None,
            "keep_prompt": bool(rule.get("keep_prompt")),
            "delivery": None,
        }
        code = headers.get(names.DELIVERY_HEADER) or rule.get("delivery")
        if code and takes and body.get("stream"):
            try:
                use["delivery"] = await self._delivery(scope, code, takes, bool(rule["by_choice"]))
            except deliveries.DeliveryError as error:
                await asgi.send_json(send, 400, {"error": asgi.error(str(error), names.NO_DELIVERY)})
                return
            deliveries.deliver(use["id"], use["delivery"])
            if not self.holds_deliveries and path in deliveries.NAME_TOKENS:
                body = {**body, "return_token_ids": True}
                send = deliveries.CountedStream(use["delivery"], send).send
        keep_use = rule.get("keep_uses", True)
        if keep_use:
            book.uses.append(use)
        exchange = headers.get(names.EXCHANGE_HEADER)
        if exchange:
            by_choice = bool(rule.get("by_choice"))
            self.exchanges.keep(exchange, exchanges.NamedRequest(use["id"], takes, by_choice))
            rule = {**rule, "keep_prompt": True}
        changed = json.dumps(_with_script(body, use, takes, rule)).encode()
        keeping = self._keeping(body, send) if path == RESPONSES else send
        running = self._run(scope, asgi.replay(changed, receive), keeping, use)
        if measured := headers.get(names.STEPS_HEADER):
            running = steps.take(running, self.steps.setdefault(measured, steps.Steps()))
        try:
            await running
        finally:
            self.log.add(use, raw, body, facts)
            if not keep_use:
                uses.forget(use["id"])

    async def _takes(
        self, scope: dict[str, Any], facts: dict[str, Any], match: MatchedRule | str
    ) -> tuple[list[list[int]], str | None]:
        """The token ids of each take, and the reason why there are none, if so."""
        if not isinstance(match, MatchedRule):
            return [], match
        try:
            return [await self._ids(scope, take, match.groups, facts["model"]) for take in match.takes], None
        except QuoteError as error:
            return [], f"script {match.rule['name']!r} cannot be written: {error}"

    async def _delivery(
        self, scope: dict[str, Any], code: str, takes: list[list[int]], by_choice: bool
    ) -> deliveries.ServedDelivery:
        decode = functools.partial(self._decoded, scope)
        by_text = code.startswith(deliveries.BY_TEXT)
        texts = [await exchanges.texts(ids, decode) if by_text else [""] * len(ids) for ids in takes]
        return deliveries.ServedDelivery(code, [deliveries.sizes_of(code, each) for each in texts], by_choice)

    def _keeping(self, body: dict[str, Any], send: Any) -> Any:
        """An ASGI `send` that keeps each Responses API response before a client can refer to it."""
        reader = conversations.ResponseReader()

        async def keep(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.body":
                for response in reader.feed(message.get("body", b""), last=not message.get("more_body")):
                    self.responses.keep(body, response)
            await send(message)

        return keep

    async def _ids(self, scope: dict[str, Any], take: Any, groups: dict[str, str], model: str) -> list[int]:
        """The token ids of a take; vLLM's own /tokenize encodes a take that is a template."""
        if isinstance(take, list):
            return take
        prompt = {"model": model, "prompt": quoted(take, groups), "add_special_tokens": False}
        tokens = (await self._ask_vllm(scope, "/tokenize", prompt)).get("tokens")
        if not tokens:
            raise QuoteError("vLLM did not tokenize it")
        return [int(token) for token in tokens]

    async def _run(self, scope: dict[str, Any], receive: Any, send: Any, use: dict[str, Any]) -> None:
        refused = self.running[use["id"]] = asyncio.Event()
        if self.watcher is None or self.watcher.done():
            self.watcher = steps.shared_task(self._watch())
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
            allowed = [await self._named(scope, token) for token in refusal["allowed"][:SHOWN_ALLOWED]]
            refused_text = None if refusal["token"] is None else await self._named(scope, refusal["token"])
            await _send_refusal(send, use, _refusal_text(use, refusal, refused_text, allowed), started)
        elif error is not None:
            if use["no_script"]:  # vLLM 0.22 raises the refusal, and an outer layer turns it into an answer
                use["status"] = 400
            raise error

    async def _watch(self) -> None:
        while self.running:
            for use in self.refused.now() & self.running.keys():
                self.running[use].set()
            await asyncio.sleep(POLL_S)

    async def _named(self, scope: dict[str, Any], token: int) -> str:
        return await self._decoded(scope, [token]) or f"token {token}"

    async def _decoded(self, scope: dict[str, Any], ids: list[int]) -> str:
        """Decodes tokens with vLLM's own /detokenize; the text of a single token is cached."""
        if len(ids) == 1 and ids[0] in self.texts:
            return self.texts[ids[0]]
        text = str((await self._ask_vllm(scope, "/detokenize", {"tokens": ids})).get("prompt", ""))
        if len(ids) == 1 and text:
            self.texts[ids[0]] = text
        return text

    async def _ask_vllm(self, scope: dict[str, Any], path: str, question: dict[str, Any]) -> dict[str, Any]:
        """Sends a request to vLLM and returns the JSON object in its answer; empty if there is none."""
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
    use: dict[str, Any], refusal: dict[str, Any], refused: str | None, allowed: list[str]
) -> str:
    if use["no_script"]:
        return str(use["no_script"])
    place = f"script {use['script']!r} was refused at token {refusal['position']} of {refusal['length']}"
    if refused is None:
        return f"{place}: it has no take for this generation"
    more = refusal["allowed_count"] - len(allowed)
    others = ", ".join(map(repr, allowed)) + (f" and {more} more" if more > 0 else "")
    return f"{place}: a grammar or limit of the request does not allow {refused!r}; allowed instead: {others}"


async def _send_refusal(send: Any, use: dict[str, Any], message: str, started: bool) -> None:
    # 400 without a script, since vLLM's Python front end itself refuses such a request with 400
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
