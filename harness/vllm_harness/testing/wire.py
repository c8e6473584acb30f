"""The wire: httpx event hooks that may change a request of the openai client and see its whole answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx  # the library of the openai client

Json = dict[str, Any]
_BODY = "vllm_harness_body"


@dataclass(frozen=True)
class WireTap:
    """What is done to each POST of a JSON object.

    Attributes:
        change: gives the request body that is sent.
        seen: gets the request body, the status, and the bytes of the answer, as far as they were read.
    """

    change: Callable[[Json], Json]
    seen: Callable[[Json, int, bytes], None]

    def hooks(self) -> dict[str, list[Callable[..., Any]]]:
        """For httpx.Client(event_hooks=...)."""
        return {"request": [self._on_request], "response": [self._on_response]}

    def async_hooks(self) -> dict[str, list[Callable[..., Any]]]:
        """For httpx.AsyncClient(event_hooks=...)."""

        async def on_request(request: httpx.Request) -> None:
            self._on_request(request)

        async def on_response(response: httpx.Response) -> None:
            self._on_response(response)

        return {"request": [on_request], "response": [on_response]}

    def _on_request(self, request: httpx.Request) -> None:
        body = _object(request.content) if request.method == "POST" else None
        if body is None:
            return
        sent = self.change(body)
        if sent != body:
            data = json.dumps(sent).encode()
            request.stream = httpx.ByteStream(data)
            request.headers["Content-Length"] = str(len(data))
        request.extensions = {**request.extensions, _BODY: sent}

    def _on_response(self, response: httpx.Response) -> None:
        body = response.request.extensions.get(_BODY)
        if body is None:
            return

        def seen(data: bytes) -> None:
            self.seen(body, response.status_code, data)

        if isinstance(response.stream, httpx.SyncByteStream):
            response.stream = _Copied(response.stream, seen)
        else:
            response.stream = _AsyncCopied(response.stream, seen)


@dataclass
class _Copied(httpx.SyncByteStream):
    inner: httpx.SyncByteStream
    seen: Callable[[bytes], None]
    chunks: list[bytes] = field(default_factory=list)

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self.inner:
            self.chunks.append(chunk)
            yield chunk

    def close(self) -> None:
        self.inner.close()
        self.seen(b"".join(self.chunks))


@dataclass
class _AsyncCopied(httpx.AsyncByteStream):
    inner: httpx.AsyncByteStream
    seen: Callable[[bytes], None]
    chunks: list[bytes] = field(default_factory=list)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self.inner:
            self.chunks.append(chunk)
            yield chunk

    async def aclose(self) -> None:
        await self.inner.aclose()
        self.seen(b"".join(self.chunks))


def _object(content: bytes) -> Json | None:
    try:
        value = json.loads(content)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
