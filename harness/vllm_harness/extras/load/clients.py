"""The clients of a load: this process, or processes elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from vllm_harness._errors import HarnessError
from vllm_harness._protocol.core.events import Json
from vllm_harness.extras.load.client import ClientJob, ClientState, Listener, LoadClient
from vllm_harness.extras.load.health import ProcessSample


class Clients(Protocol):
    """The clients that together hold all conversations of a load."""

    @property
    def states(self) -> Sequence[ClientState]:
        """The progress of each client."""

    @property
    def samples(self) -> dict[str, list[ProcessSample]]:
        """Memory and handles of each client, by the client's name."""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the load started; 0 before."""

    @property
    def errors(self) -> Sequence[HarnessError]:
        """The errors of the clients that were given up; their conversations were not held."""

    async def run(self, job: ClientJob, listener: Listener, stop: asyncio.Event) -> None:
        """Holds the conversations to their end; setting `stop` cancels those that are open.

        Raises:
            HarnessError: the conversations cannot be held.
        """

    def as_json(self) -> Json:
        """The clients' part of the report; empty if this process is the only client."""


class LocalClient:
    """This process as the only client."""

    def __init__(self) -> None:
        self._client: LoadClient | None = None

    @property
    def states(self) -> Sequence[ClientState]:
        """See `Clients`."""
        return [self._client.state] if self._client else []

    @property
    def samples(self) -> dict[str, list[ProcessSample]]:
        """See `Clients`."""
        return {"client": self._client.samples if self._client else []}

    @property
    def elapsed_s(self) -> float:
        """See `Clients`."""
        return self._client.elapsed_s if self._client else 0.0

    @property
    def errors(self) -> Sequence[HarnessError]:
        """See `Clients`."""
        return ()

    async def run(self, job: ClientJob, listener: Listener, stop: asyncio.Event) -> None:
        """See `Clients`."""
        self._client = LoadClient(job, listener)
        await self._client.run(stop)

    def as_json(self) -> Json:
        """See `Clients`."""
        return {}
