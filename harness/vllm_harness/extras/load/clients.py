"""Who holds the conversations of a load: this process, or clients elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from vllm_harness._errors import HarnessError
from vllm_harness._protocol.core.events import Json
from vllm_harness.extras.load.client import ClientJob, ClientState, Listener, LoadClient
from vllm_harness.extras.load.health import ProcessSample


class Clients(Protocol):
    """Holds all conversations of a load."""

    @property
    def states(self) -> Sequence[ClientState]:
        """How far each client is."""

    @property
    def samples(self) -> dict[str, list[ProcessSample]]:
        """Memory and handles of each client, by its name."""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first conversation might begin; 0 before."""

    @property
    def errors(self) -> Sequence[HarnessError]:
        """Of clients that were given up, so that conversations were not held."""

    async def hold(self, held: ClientJob, listener: Listener, stop: asyncio.Event) -> None:
        """Holds them to their end; where `stop` is set, what runs is cut off.

        Raises:
            HarnessError: they cannot be held.
        """

    def as_json(self) -> Json:
        """What a report says of the clients; nothing where there is this process alone."""


class LocalClient:
    """This process."""

    def __init__(self) -> None:
        self._holding: LoadClient | None = None

    @property
    def states(self) -> Sequence[ClientState]:
        """See `Clients`."""
        return [self._holding.state] if self._holding else []

    @property
    def samples(self) -> dict[str, list[ProcessSample]]:
        """See `Clients`."""
        return {"client": self._holding.samples if self._holding else []}

    @property
    def elapsed_s(self) -> float:
        """See `Clients`."""
        return self._holding.elapsed_s if self._holding else 0.0

    @property
    def errors(self) -> Sequence[HarnessError]:
        """See `Clients`."""
        return ()

    async def hold(self, held: ClientJob, listener: Listener, stop: asyncio.Event) -> None:
        """See `Clients`."""
        self._holding = LoadClient(held, listener)
        await self._holding.run(stop)

    def as_json(self) -> Json:
        """See `Clients`."""
        return {}
