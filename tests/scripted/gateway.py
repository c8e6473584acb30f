"""A gateway in front of a server; it forwards requests, but drops certain headers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from vllm_harness._exchange.endpoint import Endpoint

CONNECTION_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection"})
METHODS = ["GET", "POST", "DELETE"]


@contextmanager
def gateway(url: str, *, dropped: frozenset[str] = frozenset()) -> Iterator[str]:
    """Runs a gateway in front of a server's URL, and yields the gateway's URL.

    Args:
        dropped: the names of headers that the gateway drops, in lower case.
    """
    upstream = httpx2.AsyncClient(base_url=url, timeout=60, **Endpoint(url).connecting)

    async def forward(request: Request) -> StreamingResponse:
        headers = {k: v for k, v in request.headers.items() if k not in CONNECTION_HEADERS | dropped}
        body = await request.body()
        forwarded = upstream.build_request(request.method, request.url.path, headers=headers, content=body)
        answer = await upstream.send(forwarded, stream=True)
        headers = {k: v for k, v in answer.headers.items() if k not in CONNECTION_HEADERS}
        return StreamingResponse(
            answer.aiter_raw(), answer.status_code, headers, background=BackgroundTask(answer.aclose)
        )

    app = Starlette(routes=[Route("/{path:path}", forward, methods=METHODS)])
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
