"""Servers for tests that send no requests, or send them to a given address."""

from __future__ import annotations

from vllm_harness._configuration.model_entries import ModelEntry, RunLane
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.server import VllmServer


class DescribedServer(VllmServer):
    """Describes a server for a model entry without running any process."""

    log_path = None
    books = None

    def __init__(
        self,
        entry: ModelEntry,
        lane: RunLane = "scripted",
        version: str = "0.32.0",
        endpoint: Endpoint | None = None,
    ) -> None:
        self.entry, self.lane, self.model = entry, lane, entry.name
        self._version, self._endpoint = version, endpoint or Endpoint("http://127.0.0.1:9")

    @property
    def vllm_version(self) -> str:
        return self._version

    @property
    def endpoint(self) -> Endpoint:
        return self._endpoint
