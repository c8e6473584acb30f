"""AttachedServer: a `VllmServer` that the harness neither starts nor stops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._errors import UsageError
from vllm_harness._exchange.endpoint import API_PATHS, Endpoint, EndpointError
from vllm_harness._exchange.server import VllmServer
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._scripted.in_server.vllm_harness_names import BOOK_HEADER

_MESSAGES = {"messages": [{"role": "user", "content": "Does the header arrive?"}]}
_PROBES: dict[str, dict[str, Any]] = {
    "responses": {"input": "Does the header arrive?"},
    "chat": _MESSAGES,
    "messages": {**_MESSAGES, "max_tokens": 100},
}
"""A minimal request for each API."""


class AttachedServer(VllmServer):
    """A server that the harness neither starts nor stops. It has only the interface of `VllmServer`.

    Args:
        endpoint: the address of the server, as returned by `attach`.
        entry: the model entry whose tests run against it.
        model: the name of the model on the server; by default the entry's name or hub id, or else the only
            name that the server lists.
        books: address of the scripted server behind the endpoint, for script books.
        version: the version of the vLLM behind the endpoint; by default as `books` or `endpoint` reports it.

    Raises:
        EndpointError: the server does not answer, or does not list the model.
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
        self.model = _served_name(endpoint.models(), entry, model)
        self._version = version or (books or endpoint).vllm_version() or "0"

    @property
    def vllm_version(self) -> str:
        """The version of the vLLM behind the endpoint; `0` if it is unknown."""
        return self._version

    @property
    def endpoint(self) -> Endpoint:
        """The server's address, for clients."""
        return self._endpoint

    @property
    def books(self) -> Endpoint | None:
        """The address of the scripted server behind the endpoint; None if there is none."""
        return self._books

    def restart(self) -> NoReturn:
        """Raises UsageError: the harness cannot restart a server that it did not start."""
        raise UsageError(
            "the harness cannot restart an attached server", hint="restart it on its own machine"
        )


def check_header(server: AttachedServer, apis: Iterable[str]) -> None:
    """Checks with a scripted request over each API that the header naming the script book arrives.

    Raises:
        EndpointError: the header does not arrive at the scripted server.
        BookError: `books` is not a scripted server.
    """
    assert server.books is not None
    lost: dict[str, int] = {}
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
            hint="configure the gateway to pass the header on, in LiteLLM with "
            "`general_settings: {forward_client_headers_to_llm_api: true}`",
        )


def _served_name(models: list[str], entry: ModelEntry, wanted: str | None) -> str:
    for name in [wanted] if wanted else [entry.name, entry.hub.id]:
        if name in models:
            return name
    if wanted is None and len(models) == 1:
        return models[0]
    raise EndpointError(
        f"the server does not serve {wanted or entry.name!r}; it lists {', '.join(models[:8]) or 'nothing'}",
        hint="name one of the listed models as the server's model",
    )
