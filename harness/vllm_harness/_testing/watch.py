"""Sees the requests that this process sends, whichever library sends them, with the pieces of their answers.

Tests send by the SDKs of OpenAI and Anthropic, by httpx and by requests. So their common ground is tapped:
the transports of httpx (and httpx2, by which the openai SDK speaks), and the sessions of requests.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
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
    """A request that a test sent, and what has come of it so far.

    Attributes:
        id: unique in the run; it travels in a header, so that the scripted lane can name its tokens.
        url: asked.
        sent_headers, content: of the request.
        at: when it was sent, seconds since the epoch.
    """

    id: str = ""
    url: SplitResult = field(default_factory=lambda: urlsplit(""))
    sent_headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b""
    at: float = field(default_factory=time.time)


class Watch:
    """The exchanges of this process since they were last taken.

    Args:
        hosts: those whose exchanges are seen, beside this machine.
    """

    def __init__(self, hosts: tuple[str, ...] = ()) -> None:
        self._hosts = LOCAL_HOSTS.union(hosts)
        self._numbers = itertools.count(1)
        self._seen: list[SeenExchange] = []
        self._undo: list[Callable[[], None]] = []

    def install(self) -> None:
        """Taps the libraries."""
        for library in LIBRARIES:
            self._wrap(library.HTTPTransport, "handle_request", _over_httpx(self, library))
            self._wrap(library.AsyncHTTPTransport, "handle_async_request", _over_async_httpx(self, library))
        self._wrap(requests.Session, "send", _over_requests(self))

    def uninstall(self) -> None:
        """Leaves the libraries as they were."""
        while self._undo:
            self._undo.pop()()

    def taken(self) -> list[SeenExchange]:
        """The exchanges since the last call."""
        seen, self._seen = self._seen, []
        return seen

    def begin(self, method: str, url: str, headers: Mapping[str, str], content: bytes) -> SeenExchange | None:
        """Notes a request that is sent now; None where it is none of a test's."""
        place = urlsplit(url)
        if place.hostname not in self._hosts or place.path.startswith(_UNSEEN) or names.OWN_HEADER in headers:
            return None
        name = f"{os.getpid()}-{next(self._numbers)}"
        asked = Exchange(method=method, path=f"{place.path}{f'?{place.query}' if place.query else ''}")
        seen = SeenExchange(asked, id=name, url=place, sent_headers=dict(headers), content=content)
        self._seen.append(seen)
        return seen

    def _wrap(self, owner: Any, name: str, tap: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        setattr(owner, name, wraps(original)(tap(original)))
        self._undo.append(lambda: setattr(owner, name, original))


def _over_httpx(watch: Watch, library: Any) -> Callable[[Any], Any]:
    def tap(original: Any) -> Any:
        def handle_request(transport: Any, request: Any) -> Any:
            if (seen := _begin(watch, library, request)) is None:
                return original(transport, request)
            with _noting(seen):
                return _answered(seen, library, original(transport, request))

        return handle_request

    return tap


def _over_async_httpx(watch: Watch, library: Any) -> Callable[[Any], Any]:
    def tap(original: Any) -> Any:
        async def handle_async_request(transport: Any, request: Any) -> Any:
            if (seen := _begin(watch, library, request)) is None:
                return await original(transport, request)
            with _noting(seen):
                return _answered(seen, library, await original(transport, request))

        return handle_async_request

    return tap


@contextmanager
def _noting(seen: SeenExchange) -> Iterator[None]:
    """Notes what keeps an answer from coming."""
    try:
        yield
    except BaseException as error:
        seen.ended(error)
        raise


def _answered(seen: SeenExchange, library: Any, response: Any) -> Any:
    """The response, whose stream is seen as it is read."""
    seen.answered(response.status_code, response.headers)
    response.stream = tapped(library, response.stream, seen.arrived, seen.ended)
    return response


def _begin(watch: Watch, library: Any, request: Any) -> SeenExchange | None:
    content = b"".join(request.stream) if isinstance(request.stream, library.ByteStream) else b""
    seen = watch.begin(request.method, str(request.url), request.headers, content)
    if seen:
        request.headers[names.EXCHANGE_HEADER] = seen.id
    return seen


def _over_requests(watch: Watch) -> Callable[[Any], Any]:
    def tap(original: Any) -> Any:
        def send(session: Any, request: requests.PreparedRequest, **options: Any) -> requests.Response:
            body = request.body if isinstance(request.body, bytes) else str(request.body or "").encode()
            seen = watch.begin(request.method or "", request.url or "", request.headers, body)
            if seen is None:
                return original(session, request, **options)  # type: ignore[no-any-return]
            request.headers[names.EXCHANGE_HEADER] = seen.id
            with _noting(seen):
                response: requests.Response = original(session, request, **options)
            seen.answered(response.status_code, response.headers)
            if options.get("stream"):
                _tap_stream(response, seen)
            else:
                seen.arrived(response.content)
                seen.ended()
            return response

        return send

    return tap


def _tap_stream(response: requests.Response, seen: SeenExchange) -> None:
    original, close = response.iter_content, response.close

    def iter_content(*args: Any, **options: Any) -> Iterator[Any]:
        for chunk in original(*args, **options):
            seen.arrived(chunk if isinstance(chunk, bytes) else chunk.encode())
            yield chunk
        seen.ended()

    def close_seen() -> None:
        seen.ended()
        close()

    response.iter_content = iter_content  # type: ignore[method-assign]
    response.close = close_seen  # type: ignore[method-assign]
