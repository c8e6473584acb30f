"""Token recordings: what the recorder stores, what clients see, and how a replay is compared."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_harness._errors import UsageError
from vllm_harness._scripted.recording import TokenRecord
from vllm_harness._server.launch import IN_SERVER
from vllm_harness._testing.tokens import differences, file_in, meaning, read, write

sys.path.insert(0, str(IN_SERVER))
from vllm_harness_recorder import RecordMiddleware

CHAT = "/v1/chat/completions"
Answer = Callable[[dict[str, Any]], Any]


def app_of(answer: Answer) -> Any:
    """An ASGI application that answers POST with `answer(body)`, a dict as JSON or a list as a stream."""
    stored: dict[str, Any] = {}

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        raw = (await receive()).get("body", b"")
        given = answer(json.loads(raw)) if scope["method"] == "POST" else stored["later"](scope["path"])
        kind = b"text/event-stream" if isinstance(given, list) else b"application/json"
        headers = [(b"content-type", kind)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if isinstance(given, dict):
            await send({"type": "http.response.body", "body": json.dumps(given).encode()})
            return
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in given) + "data: [DONE]\n\n"
        for start in range(0, len(text), 11):  # split at arbitrary positions, as a proxy may do
            await send(
                {"type": "http.response.body", "body": text[start : start + 11].encode(), "more_body": True}
            )
        await send({"type": "http.response.body", "body": b""})

    app.stored = stored  # type: ignore[attr-defined]
    return app


def ask(app: Any, method: str, path: str, body: Any = None) -> Any:
    """Sends one request; returns the JSON of the answer, or the events of its stream."""
    sent = [{"type": "http.request", "body": json.dumps(body).encode() if body is not None else b""}]
    got: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return sent.pop(0) if sent else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        got.append(message)

    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        ends = {"client": client.getsockname(), "server": server.getsockname()}
        scope = {"type": "http", "method": method, "path": path, "headers": [], **ends}
        asyncio.run(app(scope, receive, send))
    content = b"".join(message.get("body", b"") for message in got).decode()
    if not content.startswith("data: "):
        return json.loads(content)
    lines = [line.removeprefix("data: ") for line in content.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def completion(request: dict[str, Any]) -> dict[str, Any]:
    """A chat completion with two choices, and with token ids if the request asks for them."""
    ids = [[5, 6], [7]] if request.get("return_token_ids") else [None, None]
    choices = [
        {"index": index, "message": {"content": f"word{index}"}, "finish_reason": "stop", "token_ids": each}
        for index, each in enumerate(ids)
    ]
    return {"object": "chat.completion", "choices": choices, "prompt_token_ids": [1] if ids[0] else None}


def chunks(request: dict[str, Any]) -> list[dict[str, Any]]:
    """A chat stream with one choice, and with one token in each chunk."""
    return [
        {
            "object": "chat.completion.chunk",
            "choices": [
                {
                    "index": 0,
                    "delta": {"content": word},
                    "finish_reason": "stop" if word == "word2" else None,
                    "token_ids": [number] if request.get("return_token_ids") else None,
                }
            ],
        }
        for number, word in enumerate(("word0", "word1", "word2"))
    ]


def response(request: dict[str, Any]) -> dict[str, Any]:
    """A response whose id is given in the request."""
    shown = {"message": "Hi", "tokens": [3, 4]}
    return {
        "object": "response",
        "id": request["id"],
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}],
        "output_messages": [shown] if request.get("enable_response_messages") else None,
    }


def recorded(app: RecordMiddleware) -> list[TokenRecord]:
    return [
        TokenRecord.model_validate(each) for each in ask(app, "GET", "/vllm-harness/recording")["records"]
    ]


def test_tokens_of_a_body_are_stored_and_hidden() -> None:
    app = RecordMiddleware(app_of(completion))
    seen = ask(app, "POST", CHAT, {"model": "m"})
    assert seen == completion({})
    (record,) = recorded(app)
    assert (record.path, record.request, record.status) == (CHAT, {"model": "m"}, 200)
    assert record.tokens == [[5, 6], [7]]
    assert record.answer == seen


def test_a_client_gets_the_tokens_that_it_asks_for() -> None:
    app = RecordMiddleware(app_of(completion))
    request = {"return_token_ids": True}
    assert ask(app, "POST", CHAT, request) == completion(request)


def test_tokens_of_a_stream_are_stored_and_hidden() -> None:
    app = RecordMiddleware(app_of(chunks))
    assert ask(app, "POST", CHAT, {"stream": True}) == chunks({})
    (record,) = recorded(app)
    assert record.tokens == [[0, 1, 2]]


def test_a_response_that_ends_in_the_background() -> None:
    """The tokens come with the finished response, which the client or the recorder requests later."""
    inner = app_of(lambda request: {**response({"id": "resp_1"}), "status": "queued", "output": []})
    inner.stored["later"] = lambda path: response(
        {"id": path.rpartition("/")[2], "enable_response_messages": True}
    )
    app = RecordMiddleware(inner)
    assert ask(app, "POST", "/v1/responses", {"background": True})["status"] == "queued"
    (record,) = recorded(app)
    assert record.tokens == [[3, 4]]
    assert record.answer["status"] == "completed"
    assert ask(app, "GET", "/v1/responses/resp_1") == response({"id": "resp_1"})


def test_a_recording_can_be_restarted() -> None:
    app = RecordMiddleware(app_of(completion))
    ask(app, "POST", CHAT, {})
    ask(app, "POST", "/vllm-harness/recording")
    assert recorded(app) == []


def record(answer: Any, status: int = 200, tokens: Any = None, path: str = CHAT) -> TokenRecord:
    return TokenRecord(path=path, request={}, status=status, answer=answer, tokens=tokens)


def test_a_stream_means_what_its_body_means() -> None:
    text = "word0word1word2"
    body = {"choices": [{"index": 0, "message": {"content": text}, "finish_reason": "stop"}]}
    assert meaning(record(chunks({}))) == meaning(record(body))
    assert differences([record(chunks({}))], [record(body)]) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"status": "incomplete"}, "status: ['completed'] was recorded, ['incomplete'] came"),
        ({"output": []}, "items: ['message'] was recorded, [] came"),
        ({"output": [{"type": "message", "content": []}]}, "text: ['Hi'] was recorded, [''] came"),
        ({"usage": {"input_tokens": 3, "output_tokens": 2}}, "tokens: [] was recorded, [3, 2] came"),
        (
            {"incomplete_details": {"reason": "length"}},
            "incomplete: None was recorded, 'length' came",
        ),
    ],
)
def test_another_answer_is_a_difference(changed: dict[str, Any], message: str) -> None:
    before = response({"id": "resp_1"})
    after = {**before, "id": "resp_2", **changed}
    assert differences([record(before)], [record({**before, "id": "resp_2"})]) == []
    assert f"request 1 ({CHAT}), {message}" in differences([record(before)], [record(after)])


def test_a_text_completion_has_a_meaning() -> None:
    said, other = ({"choices": [{"text": text, "finish_reason": "stop"}]} for text in ("Hi", "No"))
    assert differences([record(said)], [record(said)]) == []
    (line,) = differences([record(said)], [record(other)])
    assert "text: ['Hi'] was recorded, ['No'] came" in line


def test_a_missing_request_and_a_refusal_are_differences() -> None:
    body = completion({})
    assert differences([record(body), record(body)], [record(body)]) == ["2 requests were recorded, 1 came"]
    refused = record({"error": {}}, status=422)
    assert "status" in differences([record(body)], [refused])[0]


def test_which_records_can_be_scripted() -> None:
    assert record({}, tokens=[[1]]).scriptable
    assert record({"error": {}}, status=400).scriptable
    assert not record({}).scriptable


def test_both_lanes_use_the_same_file_name(tmp_path: Path) -> None:
    test = "tests/a/test_b.py::test_c[{}-{}]"
    live = file_in(tmp_path, test.format("live-m", "x y/1"), "live-m")
    assert live == file_in(tmp_path, test.format("scripted-m", "x y/1"), "scripted-m")
    assert live != file_in(tmp_path, test.format("live-m", "x y/2"), "live-m")
    separated = {"said": "one\u2028two\x85three"}
    write([record(separated, tokens=[[1, 2]])], live)
    assert read(live) == [record(separated, tokens=[[1, 2]])]
    live.write_text("{}\n")
    with pytest.raises(UsageError, match="is not a token recording"):
        read(live)
