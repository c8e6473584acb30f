"""What every server of a model entry offers, whoever started it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vllm_harness.configuration.model_entries import ModelEntry
from vllm_harness.configuration.targets import RunLane
from vllm_harness.exchange.endpoint import Endpoint

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI


class VllmServer(Protocol):
    """A server that serves a model entry: a `RemoteServer`, or an `AttachedServer`."""

    @property
    def endpoint(self) -> Endpoint:
        """Its address, for clients."""

    @property
    def entry(self) -> ModelEntry:
        """The model entry."""

    @property
    def model(self) -> str:
        """The served name, for `model=` in requests."""

    @property
    def lane(self) -> RunLane:
        """`live`, `scripted` or `attached`."""

    @property
    def vllm_version(self) -> str:
        """The version of its vLLM."""

    @property
    def books(self) -> Endpoint | None:
        """Where a script book is written; None where the model answers as it likes."""

    @property
    def log_path(self) -> Path | None:
        """Its log; None where the harness did not start it."""

    def url_for(self, path: str) -> str:
        """Absolute URL of a path such as `/v1/models`."""

    def client(self, **options: Any) -> OpenAI:
        """A sync openai client; it never retries by itself. Options go to `OpenAI`."""

    def async_client(self, **options: Any) -> AsyncOpenAI:
        """An async openai client; it never retries by itself. Options go to `AsyncOpenAI`."""

    def metrics(self) -> dict[str, float]:
        """Prometheus samples of `/metrics`, summed over labels: sample name -> value."""

    def restart(self) -> None:
        """Ends the server and starts it again. Raises UsageError where the harness did not start it."""
