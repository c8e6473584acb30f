"""Records the requests that this process sends with any library, and the chunks of their answers.

Tests send requests with the SDKs of OpenAI and Anthropic, with httpx and with requests. The layers that these
share are patched: the transports of httpx and httpx2 (used by the openai SDK), and the sessions of requests.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from inspect import isawaitable
from typing import Any
from urllib.parse import SplitResult, urlsplit

import requests

from vllm_harness._exchange.endpoint import LOCAL_HOSTS
from vllm_harness._exchange.pending import PendingExchange
from vllm_harness._protocol import Exchange
from vllm_harness._scripted.in_server import vllm_harness_names as names
from vllm_harness._testing.wire import LIBRARIES, tapped

_UNSEEN = (names.CONTROL_PATH, "/health")


@dataclass
class SeenExchange(PendingExchange):
    """A request that a test sent, and its answer so far.

    Attributes:
        id: an id that is unique in the run; a header sends it, so that a scripted server can report tokens.
        url: the request's URL.
        sent_headers, content: the request's headers and body.
        at: when it was sent, in seconds since the epoch.
    """

    id: str = ""
    url: SplitResult = field(default_factory=lambda: urlsplit(""))
    sent_headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b""
    at: float = field(default_factory=time.time)


class TrafficRecorder:
    """Records the exchanges of this process.

    Args:
        hosts: the hosts whose exchanges are recorded, besides this machine.
    """

    def __init__(self, hosts: tuple[str, ...] = ()) -> None:
        self._hosts = LOCAL_HOSTS.union(hosts)
        self._numbers = itertools.count(1)
        self._seen: list[SeenExchange] = []
        self._undo: list[Callable[[], None]] = []

    def install(self) -> None:
        """Patches the libraries."""
        for library in LIBRARIES:
            self._patch(library.HTTPTransport, "handle_request", _over_httpx(self, library))
            self._patch(library.AsyncHTTPTransport, "handle_async_request", _over_httpx(self, library))
        self._patch(requests.Session, "send", _over_requests(self))

    def uninstall(self) -> None:
        """Restores the libraries."""
        while self._undo:
            self._undo.pop()()

    def take(self) -> list[SeenExchange]:
        """Removes and returns the exchanges recorded since the last call."""
        seen, self._seen = self._seen, []
        return seen

    def begin(self, method: str, url: str, headers: Mapping[str, str], content: bytes) -> SeenExchange | None:
        """Records a request that is about to be sent; returns None if no test sends it."""
        parts = urlsplit(url)
        if parts.hostname not in self._hosts or parts.path.startswith(_UNSEEN) or names.OWN_HEADER in headers:
            return None
        name = f"{os.getpid()}-{next(self._numbers)}"
        asked = Exchange(method=method, path=f"{parts.path}{f'?{parts.query}' if parts.query else ''}")
        seen = SeenExchange(asked, id=name, url=parts, sent_headers=dict(headers), content=content)
        self._seen.append(seen)
        return seen

    def _patch(self, owner: Any, name: str, patch: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        setattr(owner, name, wraps(original)(patch(original)))
        self._undo.append(lambda: setattr(owner, name, original))


def _over_httpx(recorder: TrafficRecorder, library: Any) -> Callable[[Any], Any]:
    """Returns a patch for a transport's method, sync or async."""

    def patch(original: Any) -> Any:
        def handle(transport: Any, request: Any) -> Any:
            if (seen := _begin(recorder, library, request)) is None:
                return original(transport, request)
            with _errors_recorded(seen):
                response = original(transport, request)
            return (_awaited if isawaitable(response) else _answered)(seen, library, response)

        return handle

    return patch


@contextmanager
def _errors_recorded(seen: SeenExchange) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        seen.ended(error)
        raise


async def _awaited(seen: SeenExchange, library: Any, response: Any) -> Any:
    with _errors_recorded(seen):
        return _answered(seen, library, await response)


def _answered(seen: SeenExchange, library: Any, response: Any) -> Any:
    """Returns the response, whose stream is recorded as the test reads it."""
    seen.answered(response.status_code, response.headers)
    response.stream = tapped(library, response.stream, seen.arrived, seen.ended)
    return response


def _begin(recorder: TrafficRecorder, library: Any, request: Any) -> SeenExchange | None:
    content = b"".join(request.stream) if isinstance(request.stream, library.ByteStream) else b""
    seen = recorder.begin(request.method, str(request.url), request.headers, content)
    if seen:
        request.headers[names.EXCHANGE_HEADER] = seen.id
    return seen


def _over_requests(recorder: TrafficRecorder) -> Callable[[Any], Any]:
    def patch(original: Any) -> Any:
        def send(session: Any, request: requests.PreparedRequest, **options: Any) -> requests.Response:
            body = request.body if isinstance(request.body, bytes) else str(request.body or "").encode()
            seen = recorder.begin(request.method or "", request.url or "", request.headers, body)
            if seen is None:
                return original(session, request, **options)  # type: ignore[no-any-return]
            request.headers[names.EXCHANGE_HEADER] = seen.id
            with _errors_recorded(seen):
                response: requests.Response = original(session, request, **options)
            seen.answered(response.status_code, response.headers)
            if options.get("stream"):
                _record_stream(response, seen)
            else:
                seen.arrived(response.content)
                seen.ended()
            return response

        return send

    return patch


def _record_stream(response: requests.Response, seen: SeenExchange) -> None:
    original, close = response.iter_content, response.close

    def iter_content(*args: Any, **options: Any) -> Iterator[Any]:
        for chunk in original(*args, **options):
            seen.arrived(chunk if isinstance(chunk, bytes) else chunk.encode())
            yield chunk
        seen.ended()

    def close_recorded() -> None:
        seen.ended()
        close()

    response.iter_content = iter_content  # type: ignore[method-assign]
    response.close = close_recorded  # type: ignore[method-assign]
