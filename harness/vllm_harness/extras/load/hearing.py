"""One streamed answer: read, timed, and validated while it comes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import aiohttp

from vllm_harness.protocol import (
    ChatAccumulator,
    Finding,
    MessageAccumulator,
    ProtocolInputError,
    SSEEvent,
    SSEParser,
    StreamValidator,
)
from vllm_harness.protocol.core.events import Api, Json
from vllm_harness.protocol.core.timing import carries_text
from vllm_harness.protocol.responses import schema
from vllm_harness.scenarios.sending import MAX_ANSWER, Chunk, Reply


@dataclass(frozen=True)
class Heard:
    """An answer and its figures.

    Attributes:
        reply: its bytes.
        body: what a stream adds up to, or the body of an answer in one piece; None where that is nothing.
        findings: of the stream, by the rules of its API.
        first_s: seconds until the first words, thoughts or part of a call; None where none came.
        seconds: until its end.
        gaps_s: seconds between the arrivals that brought events.
        events: how many came.
        left: whether the client went away before its end.
    """

    reply: Reply
    body: Json | None = None
    findings: list[Finding] = field(default_factory=list)
    first_s: float | None = None
    seconds: float = 0.0
    gaps_s: list[float] = field(default_factory=list)
    events: int = 0
    left: bool = False


class Ear:
    """Takes the bytes of a stream as they come.

    Args:
        api: whose rules it is held against.
        request: the request's body.
    """

    def __init__(self, api: Api, request: Json) -> None:
        self.events = 0
        self.first_s: float | None = None
        self.gaps_s: list[float] = []
        self._parser = SSEParser()
        self._validator = StreamValidator(api=api, request=request)
        self._sum = _SUMS[api]()
        self._last_s: float | None = None

    def take(self, at_s: float, data: bytes) -> None:
        """Takes the next bytes, which came so many seconds after the request.

        Raises:
            ProtocolInputError: an event is too large.
        """
        events = self._parser.feed(data)
        if not events:
            return
        if self._last_s is not None:
            self.gaps_s.append(at_s - self._last_s)
        self._last_s = at_s
        for event in events:
            self._read(at_s, event)

    def end(self, at_s: float, *, whole: bool) -> None:
        """Ends the stream: `whole` unless the client went away, or the connection broke."""
        for event in self._parser.close() if whole else ():
            self._read(at_s, event)
        if whole:
            self._validator.close()

    @property
    def findings(self) -> list[Finding]:
        """What was found so far."""
        return self._validator.findings

    @property
    def body(self) -> Json | None:
        """What the stream adds up to so far."""
        return self._sum.body

    def _read(self, at_s: float, event: SSEEvent) -> None:
        self.events += 1
        value = self._validator.read(event)
        if value is None:
            return
        if self.first_s is None and carries_text(value):
            self.first_s = at_s
        self._sum.feed(value)


class _Terminal:
    """The response of a terminal event; the validator holds the deltas against it."""

    def __init__(self) -> None:
        self.body: Json | None = None

    def feed(self, event: Json) -> None:
        response = event.get("response")
        if event.get("type") in schema.TERMINAL and isinstance(response, dict):
            self.body = response


class _Completion(ChatAccumulator):
    @property
    def body(self) -> Json | None:
        return self.completion


class _Message(MessageAccumulator):
    @property
    def body(self) -> Json | None:
        return self.message


_SUMS: Mapping[Api, type[_Terminal | _Completion | _Message]] = {
    "responses": _Terminal,
    "chat": _Completion,
    "messages": _Message,
}


async def hear(
    session: aiohttp.ClientSession,
    url: str,
    request: Json,
    headers: Mapping[str, str],
    api: Api,
    *,
    leaves_after: int | None = None,
) -> Heard:
    """Sends a request once, and reads its answer.

    Args:
        session: of the connections.
        url, request, headers: what is sent.
        api: whose rules the answer is held against.
        leaves_after: after how many events the client goes away.
    """
    ear, chunks = Ear(api, request), list[Chunk]()
    status, content_type, broken, left, size = 0, "", "", False, 0
    begun = time.perf_counter()
    try:
        async with session.post(url, data=json.dumps(request), headers=headers) as answer:
            status, content_type = answer.status, answer.headers.get("content-type", "")
            streamed = content_type.startswith("text/event-stream")
            async for data in answer.content.iter_any():
                at_s = time.perf_counter() - begun
                chunks.append(Chunk(at_s, data))
                size += len(data)
                if streamed:
                    ear.take(at_s, data)
                if size > MAX_ANSWER:
                    broken = f"the answer is larger than {MAX_ANSWER} bytes"
                elif leaves_after is not None and streamed and ear.events > leaves_after:
                    left = True
                if broken or left:
                    answer.close()
                    break
    except TimeoutError:
        broken = "timeout"
    except (aiohttp.ClientError, OSError, ProtocolInputError) as error:
        broken = f"{type(error).__name__}: {error}"
    seconds = time.perf_counter() - begun
    reply = Reply(status, content_type, tuple(chunks), broken)
    if not reply.streamed:
        return Heard(reply, reply.body, seconds=seconds, left=left)
    ear.end(seconds, whole=not (broken or left))
    return Heard(reply, ear.body, ear.findings, ear.first_s, seconds, ear.gaps_s, ear.events, left)
