"""The derender route makes the same answer from tokens as Chat Completions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from requests import Response

from tests.apis import Json
from tests.behaviours.tools import CALL, CHAT_TOOL
from tests.own_server import OwnServer
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._protocol import ChatAccumulator, SSEEvent, parse_sse
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._scripted.meaning import Meaning

pytestmark = [
    pytest.mark.vllm_standard,
    pytest.mark.vllm_scripted,
    pytest.mark.vllm_model("qwen3"),
    pytest.mark.vllm_needs("chat", "tools"),
]

CHAT = "/v1/chat/completions"
REQUEST: Json = {"messages": [{"role": "user", "content": "Go on."}], "tools": [CHAT_TOOL], "temperature": 0}
FINISH = pytest.mark.vllm_known_defect("vllm-47931")
END_SHOWN = pytest.mark.vllm_known_defect("derendered-stream-shows-the-end-token")
SAYINGS = {
    "text": Meaning.of("The Nile, 🦊."),
    "thoughts": Meaning.of("The Nile.", reasoning="Rivers of Africa."),
    "call": Meaning.of(None, reasoning="I must look.", calls=(CALL,)),
}


def each_saying(known: Mapping[str, pytest.MarkDecorator]) -> pytest.MarkDecorator:
    """Parametrizes a test with SAYINGS; `known` marks those that show a known defect."""
    cases = [pytest.param(saying, id=name, marks=known.get(name, ())) for name, saying in SAYINGS.items()]
    return pytest.mark.parametrize("routes", cases, indirect=True)


@dataclass(frozen=True)
class Routes:
    """The routes of a server whose model generates a scripted answer."""

    http: Endpoint
    model: str

    def chat(self, **more: Any) -> Response:
        """Returns the Chat Completions answer, with its token ids."""
        return self._post(CHAT, {**REQUEST, "return_token_ids": True, **more})

    def rendered(self) -> Json:
        """Returns the fields that derendering needs besides the tokens, from the render route."""
        ids = self._post(f"{CHAT}/render", REQUEST).json()["token_ids"]
        request = {"model": self.model, **REQUEST}
        return {"prompt_tokens": len(ids), "prompt_token_ids": ids, "chat_request": request}

    def derender(self, **body: Any) -> Json:
        """Returns the answer of the derender route."""
        return dict(self._post(f"{CHAT}/derender", body).json())

    def _post(self, path: str, body: Json) -> Response:
        answer = self.http.post(path, json={"model": self.model, **body}, timeout=60)
        assert answer.status_code == 200, f"{path}: HTTP {answer.status_code}: {answer.text[:500]}"
        return answer


@pytest.fixture
def routes(own_server: OwnServer, request: pytest.FixtureRequest) -> Iterator[Routes]:
    """The routes of a server whose model generates the answer in the fixture's parameter."""
    server = own_server(["--enable-scale-out"])
    book = ScriptBook(server.endpoint, server.entry)
    book.script(request.param, constrained=True)
    yield Routes(book.endpoint, server.model)
    book.verify()
    book.close()


@pytest.mark.covers("VC-060")
@each_saying({"call": FINISH})
def test_derendered_tokens_are_the_body_of_chat(routes: Routes) -> None:
    body = routes.chat().json()
    (choice,) = body["choices"]
    tokens = {"index": 0, "token_ids": choice["token_ids"], "finish_reason": "stop"}
    derendered = routes.derender(
        generate_response={"request_id": "r", "choices": [tokens]}, **routes.rendered()
    )
    assert said(derendered) == said(body)
    assert derendered["usage"]["total_tokens"] == body["usage"]["total_tokens"]


@pytest.mark.covers("VC-061")
@each_saying({"text": END_SHOWN, "thoughts": END_SHOWN})
def test_derendered_chunks_are_the_stream_of_chat(routes: Routes) -> None:
    """Chunks that are derendered token by token add up to the same message, with a single role."""
    events = [event for event in parse_sse([routes.chat(stream=True).content]) if event.data != "[DONE]"]
    whole, derendered = ChatAccumulator(), ChatAccumulator()
    known, state, roles = routes.rendered(), None, 0
    for event in events:
        whole.feed(event)
        (choice,) = json.loads(event.data)["choices"]
        ids = choice.get("token_ids") or ()
        for left, token in zip(reversed(range(len(ids))), ids, strict=True):
            ends = "stop" if choice["finish_reason"] and not left else None
            tokens = {"index": 0, "token_ids": [token], "finish_reason": ends}
            chunk = {"request_id": "r", "choices": [tokens]}
            answer = routes.derender(stream=True, generate_chunk=chunk, stream_state=state, **known)
            state = answer["stream_state"]
            derendered.feed(SSEEvent(json.dumps(answer["chunk"])))
            roles += sum(bool(each["delta"].get("role")) for each in answer["chunk"]["choices"])
    assert said(derendered.completion) == said(whole.completion)
    assert roles == 1


def said(completion: Json) -> Json:
    """Returns the message and finish reason of a completion, without ids and times."""
    (choice,) = completion["choices"]
    message = choice["message"]
    texts = {key: message.get(key) or "" for key in ("role", "content", "reasoning")}
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return {**texts, "calls": calls, "finish_reason": choice["finish_reason"]}
