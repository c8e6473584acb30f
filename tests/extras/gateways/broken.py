"""A tiny gateway with one fault, such as changing requests, bodies or streams."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from vllm_harness._exchange.endpoint import Endpoint

Json = dict[str, Any]
T = TypeVar("T")
LOOK_S = 0.05
CONNECTION_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection"})


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Fault:
    """The way in which a gateway misbehaves.

    Attributes:
        event: maps an event (JSON, or the string `[DONE]`) and the stream's state to the events to send.
        body: maps the server's body to the body to send.
        request: maps the client's request body to the one to send to the server.
        status: maps the server's HTTP status to the status to send.
        held_back: whether the gateway reads the whole stream before it sends anything.
        reads_on: whether the gateway reads the answer to its end after the client has left.
        times: how many times the gateway sends each request to the server.
        without: the names of the answer headers that the gateway drops.
    """

    event: Callable[[Any, Json], list[Any]] = lambda event, memory: [event]
    body: Callable[[Json], Json] = _same
    request: Callable[[Json], Json] = _same
    status: Callable[[int], int] = _same
    held_back: bool = False
    reads_on: bool = False
    times: int = 1
    without: frozenset[str] = frozenset()


@contextmanager
def gateway(url: str, fault: Fault) -> Iterator[str]:
    """Runs a gateway with a fault in front of a server, and yields the gateway's address."""
    upstream = httpx2.AsyncClient(base_url=url, timeout=60, **Endpoint(url).connecting)
    readers: set[asyncio.Task[None]] = set()

    async def forward(request: Request) -> Response:
        raw = await request.body()
        with suppress(ValueError):
            raw = json.dumps(fault.request(json.loads(raw))).encode()
        headers = {k: v for k, v in request.headers.items() if k not in CONNECTION_HEADERS}
        for _ in range(fault.times):
            sent = upstream.build_request(request.method, request.url.path, headers=headers, content=raw)
            answer = await _unless_left(request, upstream.send(sent, stream=True))
            if fault.times > 1:
                await answer.aread()
        dropped = CONNECTION_HEADERS | fault.without
        headers = {k: v for k, v in answer.headers.items() if k not in dropped}
        status = fault.status(answer.status_code)
        if not headers.get("content-type", "").startswith("text/event-stream"):
            body = await _unless_left(request, answer.aread())
            if fault.body is not _same:
                body = json.dumps(fault.body(json.loads(body))).encode()
            await answer.aclose()
            return Response(body, status, headers)
        stream = _detached(answer, fault, readers) if fault.reads_on else _stream(answer, fault)
        return StreamingResponse(stream, status, headers)

    app = Starlette(
        routes=[Route("/{path:path}", forward, methods=["GET", "POST", "DELETE"])],
        exception_handlers={ClientDisconnect: lambda request, error: Response(status_code=499)},
    )
    # with an explicit protocol asyncio disables Nagle's algorithm, which would delay some events by 40 ms
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


async def _unless_left(request: Request, call: Coroutine[Any, Any, T]) -> T:
    """Awaits a call to the server; cancels it if the client leaves first."""
    task = asyncio.create_task(call)
    while not (await asyncio.wait({task}, timeout=LOOK_S))[0]:
        if await request.is_disconnected():
            task.cancel()
            raise ClientDisconnect
    return task.result()


async def _stream(answer: httpx2.Response, fault: Fault) -> AsyncIterator[bytes]:
    memory: Json = {}
    held: list[bytes] = []
    try:
        async for frame in _frames(answer):
            for event in _events(frame, fault, memory):
                if fault.held_back:
                    held.append(event)
                else:
                    yield event
        for event in held:
            yield event
    finally:
        await answer.aclose()


async def _detached(
    answer: httpx2.Response, fault: Fault, readers: set[asyncio.Task[None]]
) -> AsyncIterator[bytes]:
    """Forwards a stream that a separate task reads to its end, even if the client leaves."""
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def read() -> None:
        async for event in _stream(answer, fault):
            queue.put_nowait(event)
        queue.put_nowait(None)

    task = asyncio.create_task(read())
    readers.add(task)
    task.add_done_callback(readers.discard)
    while (event := await queue.get()) is not None:
        yield event


async def _frames(answer: httpx2.Response) -> AsyncIterator[str]:
    pending = ""
    async for text in answer.aiter_text():
        *frames, pending = (pending + text).split("\n\n")
        for frame in frames:
            yield frame


def _events(frame: str, fault: Fault, memory: Json) -> Iterator[bytes]:
    """The events that the gateway sends when it receives an event from the server."""
    name = next((line for line in frame.split("\n") if line.startswith("event:")), "")
    data = "\n".join(line[6:] for line in frame.split("\n") if line.startswith("data: "))
    event = data if data == "[DONE]" else json.loads(data)
    for sent in fault.event(event, memory):
        text = sent if isinstance(sent, str) else json.dumps(sent)
        line = f"event: {sent['type']}\n" if name and isinstance(sent, dict) else ""
        yield f"{line}data: {text}\n\n".encode()


def _deltas(event: Any) -> Iterator[Json]:
    for choice in event.get("choices", ()) if isinstance(event, dict) else ():
        yield choice["delta"]


def _one_delta_dropped(event: Any, memory: Json) -> list[Any]:
    if any(delta.get("content") for delta in _deltas(event)):
        memory["texts"] = memory.get("texts", 0) + 1
        if memory["texts"] == 3:
            return []
    return [event]


def _calls_merged(event: Any, memory: Json) -> list[Any]:
    for delta in _deltas(event):
        for call in delta.get("tool_calls") or ():
            call["index"] = 0
    return [event]


def _reasoning_dropped(event: Any, memory: Json) -> list[Any]:
    for delta in _deltas(event):
        delta.pop("reasoning", None)
    return [event]


def _call_id_changed(event: Any, memory: Json) -> list[Any]:
    item = event.get("item", {}) if isinstance(event, dict) else {}
    if "call_id" in item and event["type"] == "response.output_item.done":
        item["call_id"] = "call_0"
    return [event]


def _first_two_swapped(event: Any, memory: Json) -> list[Any]:
    """Sends the event that announces an item after the event that should follow it."""
    kind = event.get("type") if isinstance(event, dict) else None
    if kind == "response.output_item.added":
        memory["held"] = event
        return []
    return [event, memory.pop("held")] if "held" in memory else [event]


def _cut_off(event: Any, memory: Json) -> list[Any]:
    ends = isinstance(event, dict) and any(each.get("finish_reason") for each in event.get("choices", ()))
    memory["cut"] = memory.get("cut", False) or ends
    return [] if memory["cut"] else [event]


def _texts_joined(event: Any, memory: Json) -> list[Any]:
    """Sends all text as one delta just before the choice ends."""
    (delta,) = list(_deltas(event)) or [{}]
    if delta.get("content"):
        memory["text"] = memory.get("text", "") + delta["content"]
        memory["event"] = event
        return []
    if "text" in memory:
        memory["event"]["choices"][0]["delta"]["content"] = memory.pop("text")
        return [memory["event"], event]
    return [event]


def _renamed(body: Json) -> Json:
    return {("model_name" if key == "model" else key): value for key, value in body.items()}


FAULTS = {
    "drops a delta": Fault(event=_one_delta_dropped),
    "merges two calls": Fault(event=_calls_merged),
    "holds the stream back": Fault(held_back=True),
    "loses reasoning": Fault(event=_reasoning_dropped),
    "changes an id": Fault(event=_call_id_changed),
    "drops [DONE]": Fault(event=lambda event, memory: [] if event == "[DONE]" else [event]),
    "answers 200 to an error": Fault(status=lambda status: 200),
    "reorders events": Fault(event=_first_two_swapped),
    "renames a field": Fault(body=_renamed),
    "reads on after the client left": Fault(reads_on=True),
    "tries again": Fault(times=2),
    "ends the stream early": Fault(event=_cut_off),
    "joins the deltas": Fault(event=_texts_joined),
    "loses the usage": Fault(body=lambda body: {key: body[key] for key in body if key != "usage"}),
    "loses a call": Fault(body=lambda body: {**body, "content": body["content"][:-1]}),
    "leaves a field of the request out": Fault(
        request=lambda body: {key: body[key] for key in body if key != "temperature"}
    ),
    "adds events": Fault(event=lambda event, memory: [{"type": "ping"}, event]),
}
