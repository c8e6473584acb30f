"""Hooks into HTTP clients that change requests, and observe answers while they are read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2

from vllm_harness._exchange.server import VllmServer
from vllm_harness._protocol.conversation.exchange import json_object
from vllm_harness._protocol.core.events import Json

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

LIBRARIES = [httpx2]
"""The openai client's HTTP library, and httpx if it is installed, as tests may use clients of both."""
with suppress(ImportError):
    import httpx

    LIBRARIES.append(httpx)
_BODY = "vllm_harness_body"


@dataclass(frozen=True)
class WireTap:
    """Changes and observes each POST of a JSON object.

    Attributes:
        change: receives the request's body, and returns the body to send.
        seen: receives the sent body, the status, and the bytes of the answer that were read.
    """

    change: Callable[[Json], Json]
    seen: Callable[[Json, int, bytes], None]

    def client(self, server: VllmServer) -> OpenAI:
        """A sync openai client for a server."""
        from openai import DefaultHttpxClient

        return server.client(
            http_client=DefaultHttpxClient(event_hooks=self.hooks(), **server.endpoint.connecting)
        )

    def async_client(self, server: VllmServer) -> AsyncOpenAI:
        """An async openai client for a server."""
        from openai import DefaultAsyncHttpxClient

        http_client = DefaultAsyncHttpxClient(event_hooks=self.async_hooks(), **server.endpoint.connecting)
        return server.async_client(http_client=http_client)

    def hooks(self) -> dict[str, list[Callable[..., Any]]]:
        """The event hooks of an `httpx2.Client`."""
        return {"request": [self._on_request], "response": [self._on_response]}

    def async_hooks(self) -> dict[str, list[Callable[..., Any]]]:
        """The event hooks of an `httpx2.AsyncClient`."""

        async def on_request(request: httpx2.Request) -> None:
            self._on_request(request)

        async def on_response(response: httpx2.Response) -> None:
            self._on_response(response)

        return {"request": [on_request], "response": [on_response]}

    def _on_request(self, request: httpx2.Request) -> None:
        body = json_object(request.content) if request.method == "POST" else None
        if body is None:
            return
        sent = self.change(body)
        if sent != body:
            data = json.dumps(sent).encode()
            request.stream = httpx2.ByteStream(data)
            request.headers["Content-Length"] = str(len(data))
        request.extensions = {**request.extensions, _BODY: sent}

    def _on_response(self, response: httpx2.Response) -> None:
        body, chunks = response.request.extensions.get(_BODY), list[bytes]()
        if body is None:
            return

        def arrived(chunk: bytes) -> bytes:
            chunks.append(chunk)
            return chunk

        def ended(error: BaseException | None = None) -> None:
            if error is None:
                self.seen(body, response.status_code, b"".join(chunks))

        response.stream = tapped(httpx2, response.stream, arrived, ended)


def tapped(
    library: Any, inner: Any, arrived: Callable[[bytes], bytes], ended: Callable[[BaseException | None], None]
) -> Any:
    """Wraps a stream, sync or async, to observe its bytes as they are read.

    Args:
        library: httpx or httpx2.
        inner: the stream.
        arrived: receives each chunk, and returns it.
        ended: receives the error that breaks the stream, or None when the stream is closed.
    """

    @contextmanager
    def errors_reported() -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            ended(error)
            raise

    class Tapped(library.SyncByteStream, library.AsyncByteStream):  # type: ignore[misc]
        def __iter__(self) -> Iterator[bytes]:
            with errors_reported():
                for chunk in inner:
                    yield arrived(chunk)

        async def __aiter__(self) -> AsyncIterator[bytes]:
            with errors_reported():
                async for chunk in inner:
                    yield arrived(chunk)

        def close(self) -> None:
            ended(None)
            inner.close()

        async def aclose(self) -> None:
            ended(None)
            await inner.aclose()

    return Tapped()
