"""The interface of every server of a model entry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._configuration.targets import RunLane
from vllm_harness._exchange.endpoint import Endpoint

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI


class VllmServer(Protocol):
    """A server of a model entry: a `RemoteServer` or an `AttachedServer`.

    Attributes:
        entry: the model entry.
        model: the served name, for `model=` in requests.
        lane: `live`, `scripted` or `attached`.
        log_path: the log of the server; None if the harness did not start it.
    """

    entry: ModelEntry
    model: str
    lane: RunLane
    log_path: Path | None

    @property
    def vllm_version(self) -> str:
        """The version of vLLM on the server."""

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint for clients."""

    @property
    def books(self) -> Endpoint | None:
        """The endpoint to which script books are written; None if the answers are not scripted."""

    def restart(self) -> None:
        """Restarts the server. Raises UsageError if the harness did not start it."""

    def url_for(self, path: str) -> str:
        """The absolute URL of a path such as `/v1/models`."""
        return self.endpoint.url_for(path)

    def client(self, **options: Any) -> OpenAI:
        """A sync openai client without retries. Options are passed to `OpenAI`."""
        return self.endpoint.client(**options)

    def async_client(self, **options: Any) -> AsyncOpenAI:
        """An async openai client without retries. Options are passed to `AsyncOpenAI`."""
        return self.endpoint.async_client(**options)

    def metrics(self) -> dict[str, float]:
        """The Prometheus samples of `/metrics` by name, summed over their labels."""
        return self.endpoint.metrics()
