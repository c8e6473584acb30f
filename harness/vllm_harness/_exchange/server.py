"""VllmServer: the common interface of servers, whether or not the harness started them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vllm_harness._configuration.model_entries import ModelEntry, RunLane
from vllm_harness._exchange.endpoint import Endpoint

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI


class VllmServer(Protocol):
    """The interface that `RemoteServer` and `AttachedServer` share.

    A `RemoteServer` also has its process, its plan, and script books by name.

    Attributes:
        entry: the model entry that the server serves.
        model: the served name, for `model=` in requests.
        lane: how the server gets its answers: `live`, `scripted` or `attached`.
        log_path: the server's log file; None if the harness did not start the server.
    """

    entry: ModelEntry
    model: str
    lane: RunLane
    log_path: Path | None

    @property
    def vllm_version(self) -> str:
        """The version of the server's vLLM."""

    @property
    def endpoint(self) -> Endpoint:
        """The server's address, for clients."""

    @property
    def books(self) -> Endpoint | None:
        """The address to which script books are sent; None if the model's answers are not scripted."""

    def restart(self) -> None:
        """Stops the server and starts it again. Raises UsageError if the harness did not start it."""

    def url_for(self, path: str) -> str:
        """The absolute URL of a path such as `/v1/models`."""
        return self.endpoint.url_for(path)

    def client(self, **options: Any) -> OpenAI:
        """A sync `openai` client that never retries. The options are those of `OpenAI`."""
        return self.endpoint.client(**options)

    def async_client(self, **options: Any) -> AsyncOpenAI:
        """An async `openai` client that never retries. The options are those of `AsyncOpenAI`."""
        return self.endpoint.async_client(**options)

    def metrics(self) -> dict[str, float]:
        """The Prometheus samples of `/metrics`, summed over their labels, by sample name."""
        return self.endpoint.metrics()
