"""One request and what came back, as bytes with their times."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from vllm_harness.protocol.core.events import Json, as_json
from vllm_harness.protocol.core.sse import SSEEvent, parse_sse

MAX_ANSWER = 256 * 2**20


@dataclass(frozen=True)
class Chunk:
    """Bytes of an answer.

    Attributes:
        at_s: seconds since the request was sent.
        data: as they came.
    """

    at_s: float
    data: bytes


@dataclass(frozen=True)
class Reply:
    """What came back.

    Attributes:
        status: of HTTP; 0: no answer.
        content_type: of the answer.
        chunks: its bytes.
        broken: how it ended, where it did not end well.
    """

    status: int
    content_type: str
    chunks: tuple[Chunk, ...]
    broken: str = ""

    @property
    def content(self) -> bytes:
        """All bytes."""
        return b"".join(chunk.data for chunk in self.chunks)

    @property
    def streamed(self) -> bool:
        """Whether it is a stream of events."""
        return self.content_type.startswith("text/event-stream")

    @property
    def sse(self) -> list[SSEEvent]:
        """The events of a stream."""
        return list(parse_sse(chunk.data for chunk in self.chunks))

    @property
    def events(self) -> list[Json]:
        """The events of a stream as JSON; those that are none are left out."""
        return [value for event in self.sse if (value := as_json(event)) is not None]

    @property
    def body(self) -> Json | None:
        """The JSON object of an answer in one piece; None where it is none."""
        try:
            value = json.loads(self.content)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None


def send(
    client: httpx.Client,
    url: str,
    request: Mapping[str, Any] | None,
    headers: Mapping[str, str],
    *,
    method: str = "POST",
    limit_s: float,
) -> Reply:
    """Sends a request once, with a body where there is one, and reads the whole answer.

    Args:
        client: that sends it.
        url, request, headers: what is sent.
        method: of HTTP.
        limit_s: seconds in which the whole answer must come.
    """
    begun = time.monotonic()
    status, content_type, chunks, broken = 0, "", list[Chunk](), ""
    try:
        with client.stream(method, url, json=request, headers=dict(headers), timeout=limit_s) as answer:
            status, content_type = answer.status_code, answer.headers.get("content-type", "")
            size = 0
            for data in answer.iter_raw():
                chunks.append(Chunk(time.monotonic() - begun, data))
                size += len(data)
                if size > MAX_ANSWER:
                    broken = f"the answer is larger than {MAX_ANSWER} bytes"
                elif time.monotonic() - begun > limit_s:
                    broken = _late(limit_s)
                if broken:
                    break
    except httpx.TimeoutException:
        broken = _late(limit_s)
    except httpx.HTTPError as error:
        broken = f"{type(error).__name__}: {error}"
    return Reply(status, content_type, tuple(chunks), broken)


def _late(limit_s: float) -> str:
    return f"it did not end within {limit_s:g} s (`limits.request_s` of the model entry)"
