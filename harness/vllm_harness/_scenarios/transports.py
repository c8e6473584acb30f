"""Transports: the API that a conversation is held over, and how much of it each request sends."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vllm_harness._errors import UsageError
from vllm_harness._exchange.building import Ask, request_of
from vllm_harness._exchange.endpoint import API_PATHS
from vllm_harness._protocol.core.events import Api, Json


@dataclass(frozen=True)
class Transport:
    """How a conversation is held over an API, streamed or not.

    Attributes:
        name: for people, whether it is streamed or not.
        api: whose rules its answers are held against.
        stored: whether the server keeps what was said, so that a request sends only what is new.
        streamed: whether its answers are streamed.
    """

    name: str
    api: Api
    stored: bool = False
    streamed: bool = False

    @property
    def label(self) -> str:
        """Such as `chat` or `chat-stream`."""
        return f"{self.name}{'-stream' if self.streamed else ''}"

    @property
    def path(self) -> str:
        """Of the requests."""
        return API_PATHS[self.api]

    def request(self, ask: Ask) -> Json:
        """The body of a turn's request."""
        return request_of(self.api, replace(ask, stored=self.stored, stream=self.streamed))


TRANSPORTS = {
    each.name: each
    for each in (
        Transport("responses", "responses", stored=True),
        Transport("responses-history", "responses"),
        Transport("chat", "chat"),
        Transport("messages", "messages"),
    )
}


def find_transport(name: str) -> Transport:
    """The transport of a name. Raises UsageError."""
    if name not in TRANSPORTS:
        raise UsageError(
            f"there is no transport {name!r}", hint=f"the transports are: {', '.join(TRANSPORTS)}"
        )
    return TRANSPORTS[name]
