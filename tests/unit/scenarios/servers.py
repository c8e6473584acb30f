"""Servers for tests that send nothing to them, or only to an address of their own."""

from __future__ import annotations

from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._configuration.targets import RunLane
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.server import VllmServer


class DescribedServer(VllmServer):
    """The description of a server of a model entry, which no process stands behind."""

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
