"""VllmServer: the common interface of servers, whether or not the harness started them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._configuration.targets import RunLane
from vllm_harness._exchange.endpoint import Endpoint

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI


class VllmServer(Protocol):
    """The interface that `RemoteServer` and `AttachedServer` share.

    A `RemoteServer` has more: its process, its plan, and script books by name.

    Attributes:
        entry: the model entry.
        model: the served name, for `model=` in requests.
        lane: `live`, `scripted` or `attached`.
        log_path: its log; None if the harness did not start it.
    """

    entry: ModelEntry
    model: str
    lane: RunLane
    log_path: Path | None

    @property
    def vllm_version(self) -> str:
        """The version of its vLLM."""

    @property
    def endpoint(self) -> Endpoint:
        """Its address, for clients."""

    @property
    def books(self) -> Endpoint | None:
        """The address for script books; None if the model's answers are not scripted."""

    def restart(self) -> None:
        """Ends the server and starts it again. Raises UsageError if the harness did not start it."""

    def url_for(self, path: str) -> str:
        """Absolute URL of a path such as `/v1/models`."""
        return self.endpoint.url_for(path)

    def client(self, **options: Any) -> OpenAI:
        """A sync openai client; it never retries by itself. Options go to `OpenAI`."""
        return self.endpoint.client(**options)

    def async_client(self, **options: Any) -> AsyncOpenAI:
        """An async openai client; it never retries by itself. Options go to `AsyncOpenAI`."""
        return self.endpoint.async_client(**options)

    def metrics(self) -> dict[str, float]:
        """Prometheus samples of `/metrics`, summed over labels: sample name -> value."""
        return self.endpoint.metrics()
