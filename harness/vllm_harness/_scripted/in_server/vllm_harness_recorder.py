"""ASGI middleware: records the token ids that vLLM generates for each request, hidden from the client.

It makes each request ask vLLM for the ids and sets them to null in the answer, so that any client sees what
it would see without the recorder. Only the user who runs the server may use `/vllm-harness/recording`: POST
starts a new recording, GET returns `{"records": [...]}`. Runs inside the server and imports nothing from the
harness outside this folder.

A record has the keys `path`, `request`, `status`, `answer` (a body, or a list of stream events), and `tokens`
(a list of ids per choice or generation; None if vLLM omits them: Messages, Harmony, broken answers).
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import vllm_harness_asgi as asgi
import vllm_harness_names as names

RESPONSES = "/v1/responses"
# the request field that asks for token ids; None if the API has no such field
TOKEN_FIELDS = {
    RESPONSES: "enable_response_messages",
    "/v1/chat/completions": "return_token_ids",
    "/v1/completions": "return_token_ids",
    "/v1/messages": None,
}
ADDED = {"input_messages", "output_messages", "prompt_token_ids", "token_ids"}


class RecordMiddleware:
    """Wraps vLLM's application (`--middleware vllm_harness_recorder.RecordMiddleware`)."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.records: list[dict[str, Any]] = []

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answers requests about the recording; forwards all others, and records those that generate."""
        path, method = asgi.route(scope), scope.get("method")
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif path == names.RECORDING_PATH and not asgi.of_this_user(scope):
            await asgi.refuse_other_user(send)
        elif path == names.RECORDING_PATH:
            await self._control(method, scope, send)
        elif method == "POST" and path in TOKEN_FIELDS:
            await self._generate(scope, path, receive, send)
        elif record := self._of_response(path):
            await self.app(scope, receive, RecordedAnswer(record, send).send)
        else:
            await self.app(scope, receive, send)

    async def _control(self, method: str | None, scope: dict[str, Any], send: Any) -> None:
        if method == "POST":
            self.records = []
        for record in self.records:
            if record["response_id"] and record["tokens"] is None:
                await self._retrieve(record, scope)
        await asgi.send_json(send, 200, {"records": [_kept(record) for record in self.records]})

    async def _generate(self, scope: dict[str, Any], path: str, receive: Any, send: Any) -> None:
        _, body = await asgi.json_body(self.app, scope, receive, send)
        if body is None:
            return
        field = TOKEN_FIELDS[path]
        record = {
            "path": path,
            "request": body,
            "status": None,
            "answer": None,
            "tokens": None,
            "response_id": None,
            "tokens_wanted": bool(field and body.get(field)),
        }
        self.records.append(record)
        changed = json.dumps({**body, field: True} if field else body).encode()
        answer = RecordedAnswer(record, send)
        await self.app(asgi.with_length_unknown(scope), asgi.replay(changed, receive), answer.send)

    def _of_response(self, path: str) -> dict[str, Any] | None:
        """The record of the stored response whose id is in a path; None if it was not recorded."""
        identifier = path.removeprefix(f"{RESPONSES}/").split("/")[0]
        return next((record for record in self.records if record["response_id"] == identifier), None)

    async def _retrieve(self, record: dict[str, Any], scope: dict[str, Any]) -> None:
        """Retrieves a background response from vLLM, so that its record gets the answer and the tokens."""

        async def discard(message: dict[str, Any]) -> None:
            pass

        path = f"{RESPONSES}/{record['response_id']}"
        retrieval = {"path": path, "raw_path": path.encode(), "query_string": b"", "method": "GET"}
        receive = asgi.replay(b"", asyncio.Event().wait)
        await self.app({**scope, **retrieval}, receive, RecordedAnswer(record, discard).send)


class RecordedAnswer:
    """Records an answer on its way to the client; sets fields that the client did not request to null."""

    def __init__(self, record: dict[str, Any], send: Any) -> None:
        self.record = record
        self.forward = send
        self.start: dict[str, Any] = {}
        self.streams = False
        self.left = b""

    async def send(self, message: dict[str, Any]) -> None:
        """Records and forwards an ASGI message of the answer."""
        if message["type"] == "http.response.start":
            self.start = message
            kind = dict(message["headers"]).get(b"content-type", b"")
            self.streams = kind.startswith(b"text/event-stream")
            self.record["status"] = self.record["status"] or message["status"]
            if self.streams:
                self.record["answer"] = []
                await self.forward(message)
        elif message["type"] != "http.response.body":
            await self.forward(message)
        elif self.streams:
            await self.forward({**message, "body": self._lines(message)})
        else:
            await self._whole(message)

    def _lines(self, message: dict[str, Any]) -> bytes:
        *lines, self.left = (self.left + message.get("body", b"")).split(b"\n")
        if not message.get("more_body"):
            lines, self.left = [*lines, self.left], b""
            return b"\n".join(self._line(line) for line in lines)
        return b"".join(self._line(line) + b"\n" for line in lines)

    def _line(self, line: bytes) -> bytes:
        name, colon, data = line.partition(b": ")
        if name != b"data" or not data.startswith(b"{"):
            return line
        try:
            event = json.loads(data)
        except ValueError:
            return line
        self.record["answer"].append(self._recorded(event))
        return name + colon + json.dumps(event, ensure_ascii=False).encode()

    async def _whole(self, message: dict[str, Any]) -> None:
        self.left += message.get("body", b"")
        if message.get("more_body"):
            return
        content = self.left
        try:
            body = json.loads(content)
        except ValueError:
            body = content.decode("utf-8", "replace")
        else:
            answer = self._recorded(body)
            if self.record["answer"] is None or _is_response(answer):  # not the answer to DELETE, nor a 404
                self.record["answer"] = answer
            content = json.dumps(body, ensure_ascii=False).encode()
        headers = [(k, v) for k, v in self.start["headers"] if k.lower() != b"content-length"]
        headers.append((b"content-length", str(len(content)).encode()))
        await self.forward({**self.start, "headers": headers})
        await self.forward({"type": "http.response.body", "body": content, "more_body": False})

    def _recorded(self, value: Any) -> Any:
        """Records the tokens and id in an answer or event; sets fields that were not requested to null."""
        if not isinstance(value, dict):
            return value
        response = value if _is_response(value) else value.get("response")
        if isinstance(response, dict):
            self.record["response_id"] = response.get("id")
            self._record_generations(response.get("output_messages"))
            self._blank(response)
        for choice in value.get("choices") or ():
            self._record_choice(choice)
            self._blank(choice)
        self._blank(value)
        return value

    def _blank(self, value: dict[str, Any]) -> None:
        if not self.record["tokens_wanted"]:
            value.update(dict.fromkeys(ADDED & value.keys()))

    def _record_generations(self, messages: Any) -> None:
        generations = [message.get("tokens") for message in messages or () if isinstance(message, dict)]
        if generations and all(isinstance(tokens, list) for tokens in generations):
            self.record["tokens"] = generations[::2]  # the entries between are prompts of later generations

    def _record_choice(self, choice: dict[str, Any]) -> None:
        if not isinstance(choice.get("token_ids"), list):
            return
        choices = self.record["tokens"] = self.record["tokens"] or []
        index = choice.get("index", 0)
        choices.extend([] for _ in range(index + 1 - len(choices)))
        choices[index].extend(choice["token_ids"])


def _is_response(value: Any) -> bool:
    return isinstance(value, dict) and value.get("object") == "response"


def _kept(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in ("response_id", "tokens_wanted")}
