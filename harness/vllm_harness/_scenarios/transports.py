"""Transports: the API of a conversation, and how much of it each request sends."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vllm_harness._errors import UsageError
from vllm_harness._exchange.building import TurnRequest, request_of
from vllm_harness._exchange.endpoint import API_PATHS
from vllm_harness._protocol.core.events import Api, Json


@dataclass(frozen=True)
class Transport:
    """A way to run a conversation over an API, streamed or not.

    Attributes:
        name: the name of the transport, the same whether streamed or not.
        api: the API that it uses.
        stored: whether the server stores the conversation, so that a request sends only what is new.
        streamed: whether answers are streamed.
    """

    name: str
    api: Api
    stored: bool = False
    streamed: bool = False

    @property
    def label(self) -> str:
        """Its name, with `-stream` if it is streamed, such as `chat` or `chat-stream`."""
        return f"{self.name}{'-stream' if self.streamed else ''}"

    @property
    def path(self) -> str:
        """The path of its requests."""
        return API_PATHS[self.api]

    def request(self, ask: TurnRequest) -> Json:
        """Makes the body of a turn's request."""
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
    """Finds a transport by its name. Raises UsageError if the name is unknown."""
    if name not in TRANSPORTS:
        raise UsageError(f"unknown transport {name!r}", hint=f"use one of {', '.join(TRANSPORTS)}")
    return TRANSPORTS[name]
