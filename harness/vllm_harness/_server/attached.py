"""AttachedServer: a `VllmServer` that the harness did not start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._errors import UsageError
from vllm_harness._exchange.endpoint import API_PATHS, Endpoint, EndpointError
from vllm_harness._exchange.server import VllmServer
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._scripted.in_server.vllm_harness_names import BOOK_HEADER

_ASKED = {"messages": [{"role": "user", "content": "Does the header arrive?"}]}
_PROBES: dict[str, dict[str, Any]] = {
    "responses": {"input": "Does the header arrive?"},
    "chat": _ASKED,
    "messages": {**_ASKED, "max_tokens": 100},
}
"""A request of each API."""


class AttachedServer(VllmServer):
    """A server that the harness neither starts nor stops.

    Args:
        endpoint: its address, as `attach` gives it.
        entry: the model entry whose tests are to run against it.
        model: the name it serves; by default the entry's name or hub id, else the only model it lists.
        books: address of the scripted server behind it, which is told what the model answers.
        version: the vLLM behind it; by default what the scripted server or it itself says.

    Raises:
        EndpointError: it does not answer, or lists no such model.
    """

    lane = "attached"
    log_path = None

    def __init__(
        self,
        endpoint: Endpoint,
        entry: ModelEntry,
        *,
        model: str | None = None,
        books: Endpoint | None = None,
        version: str | None = None,
    ) -> None:
        self._endpoint = endpoint
        self.entry = entry
        self._books = books
        self.model = _served(endpoint.models(), entry, model)
        self._version = version or (books or endpoint).vllm_version() or "0"

    @property
    def vllm_version(self) -> str:
        """The version of the vLLM behind it, as far as it is known."""
        return self._version

    @property
    def endpoint(self) -> Endpoint:
        """Its address, for clients."""
        return self._endpoint

    @property
    def books(self) -> Endpoint | None:
        """The scripted server behind it; None where there is none."""
        return self._books

    def restart(self) -> NoReturn:
        """Raises UsageError: the harness cannot restart a server that it did not start."""
        raise UsageError(
            "an attached server cannot be restarted by the harness", hint="restart it where it was started"
        )


def check_header(server: AttachedServer, apis: Iterable[str]) -> None:
    """Sends a scripted request over each API, and looks whether the scripted server knew whose it is.

    Args:
        server: one with `books`.
        apis: names of `API_PATHS`.

    Raises:
        EndpointError: the header that names a request's book does not arrive behind the server.
        BookError: `books` is no scripted server.
    """
    assert server.books is not None
    lost = {}
    for api in apis:
        book = ScriptBook(server.books, server.entry, clients=server.endpoint)
        try:
            book.script("The header arrives.", times=None)
            body = {"model": server.model, **_PROBES[api]}
            answer = book.endpoint.post(API_PATHS[api], json=body)
            if not book.report()["uses"]:
                lost[api] = answer.status_code
        finally:
            book.close()
    if lost:
        answered = ", ".join(f"{api} (HTTP {status})" for api, status in lost.items())
        raise EndpointError(
            f"the header {BOOK_HEADER} does not arrive at {server.books.base_url} through "
            f"{server.endpoint.base_url}: {answered}",
            hint="have it pass the header on, as LiteLLM does with "
            "`general_settings: {forward_client_headers_to_llm_api: true}`",
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
