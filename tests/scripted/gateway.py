"""A gateway in front of a server: passes requests on, without the headers that it is to drop."""

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

OF_A_CONNECTION = frozenset({"host", "content-length", "transfer-encoding", "connection"})
METHODS = ["GET", "POST", "DELETE"]


@contextmanager
def gateway(url: str, *, dropped: frozenset[str] = frozenset()) -> Iterator[str]:
    """The address of a gateway in front of an address.

    Args:
        dropped: names of headers that do not pass, in lower case.
    """
    upstream = httpx2.AsyncClient(base_url=url, timeout=60)

    async def passed_on(request: Request) -> StreamingResponse:
        headers = {k: v for k, v in request.headers.items() if k not in OF_A_CONNECTION | dropped}
        body = await request.body()
        sent = upstream.build_request(request.method, request.url.path, headers=headers, content=body)
        answer = await upstream.send(sent, stream=True)
        kept = {k: v for k, v in answer.headers.items() if k not in OF_A_CONNECTION}
        return StreamingResponse(
            answer.aiter_raw(), answer.status_code, kept, background=BackgroundTask(answer.aclose)
        )

    app = Starlette(routes=[Route("/{path:path}", passed_on, methods=METHODS)])
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
