"""AttachedServer: a server that the harness did not start, with the interface of RemoteServer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from vllm_harness.configuration.model_entries import ModelEntry
from vllm_harness.endpoint import Endpoint, EndpointError
from vllm_harness.errors import UsageError

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI


class AttachedServer:
    """A server that the harness neither starts nor stops.

    Args:
        endpoint: its address, see `vllm_harness.endpoint.attach`.
        entry: the model entry whose tests are to run against it.
        model: the name it serves; by default the entry's name or hub id, else the only model it lists.

    Raises:
        EndpointError: it does not answer, or lists no such model.
    """

    lane = "attached"

    def __init__(self, endpoint: Endpoint, entry: ModelEntry, model: str | None = None) -> None:
        self.endpoint = endpoint
        self.entry = entry
        self.model = _served(endpoint.models(), entry, model)
        self.vllm_version = endpoint.vllm_version() or "0"

    def url_for(self, path: str) -> str:
        """Absolute URL of a path such as `/v1/models`."""
        return self.endpoint.url_for(path)

    def client(self, **options: object) -> OpenAI:
        """A sync openai client; it never retries by itself."""
        return self.endpoint.client(**options)

    def async_client(self, **options: object) -> AsyncOpenAI:
        """An async openai client; it never retries by itself."""
        return self.endpoint.async_client(**options)

    def metrics(self) -> dict[str, float]:
        """Prometheus samples of `/metrics`, summed over labels."""
        return self.endpoint.metrics()

    def restart(self) -> NoReturn:
        """Raises UsageError: the harness cannot restart a server that it did not start."""
        raise UsageError(
            "an attached server cannot be restarted by the harness", hint="restart it where it was started"
        )


def _served(models: list[str], entry: ModelEntry, wanted: str | None) -> str:
    for name in [wanted] if wanted else [entry.name, entry.hub.id]:
        if name in models:
            return name
    if wanted is None and len(models) == 1:
        return models[0]
    raise EndpointError(
        f"the server does not serve {wanted or entry.name!r}; it lists {', '.join(models[:8]) or 'nothing'}",
        hint="name one of the listed models as the server's model",
    )
