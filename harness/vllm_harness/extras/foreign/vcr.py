"""Reads the format of VCR: `interactions`, which vcrpy and the tests of pydantic-ai write.

Source: https://vcrpy.readthedocs.io; the key `parsed_body` is an addition of pydantic-ai.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from vllm_harness._cassettes.answers import json_of, response_of
from vllm_harness._cassettes.format import (
    Cassette,
    Data,
    Recorded,
    RecordedExchange,
    RecordedRequest,
    RecordedResponse,
)
from vllm_harness._files.located_yaml import Document
from vllm_harness._protocol import Exchange
from vllm_harness.extras.foreign.foreign import ForeignError, Loose, first_values, of_the_apis, path_of


class _Request(Loose):
    method: str = "POST"
    uri: str = ""
    headers: dict[str, Any] = Field(default_factory=dict)
    body: Any = None
    parsed_body: Any = None


class _Status(Loose):
    code: int = 200


class _Response(Loose):
    status: _Status = _Status()
    headers: dict[str, Any] = Field(default_factory=dict)
    body: Any = None
    parsed_body: Any = None


class _Interaction(Loose):
    request: _Request
    response: _Response


class _File(Loose):
    interactions: list[_Interaction]


def read(document: Document) -> Cassette:
    """Reads the API exchanges in a file. Raises ForeignError, which names file, line and key."""
    file = document.validated(_File, ForeignError)
    interactions = [interaction for interaction in file.interactions if of_the_apis(interaction.request.uri)]
    exchanges = tuple(_exchange(each, f"t{number}") for number, each in enumerate(interactions, start=1))
    return Cassette(cassette=1, recorded=Recorded(by="vcr"), exchanges=exchanges, count=len(exchanges))


def _exchange(interaction: _Interaction, name: str) -> RecordedExchange:
    request = interaction.request
    content = _content(request.body)
    body = request.parsed_body if request.parsed_body is not None else json_of(content)
    recorded = RecordedRequest(
        method=request.method,
        path=path_of(request.uri),
        headers=first_values(request.headers),
        body=body,
        text=content.decode("utf-8", "replace") if body is None and content else None,
    )
    return RecordedExchange(turn=name, request=recorded, response=_response(interaction.response))


def _response(response: _Response) -> RecordedResponse:
    headers = first_values(response.headers)
    if response.parsed_body is not None:
        return RecordedResponse(status=response.status.code, headers=headers, body=response.parsed_body)
    content = _content(response.body)
    names = {name.lower() for name in headers}
    if "content-type" not in names and content.lstrip().startswith((b"data:", b"event:")):
        headers = {**headers, "content-type": "text/event-stream"}
    chunks = [(0.0, content)] if content else []
    return response_of(Exchange().answered(response.status.code, headers, chunks))


def _content(body: Any) -> bytes:
    """The bytes of a body, which is given directly or under `string`."""
    data: Data | Any = body.get("string") if isinstance(body, dict) else body
    if isinstance(data, str):
        return data.encode("utf-8", "surrogateescape")
    return data if isinstance(data, bytes) else b""
