"""The form of VCR: `interactions`, as vcrpy and pydantic-ai's tests write them.

Source: https://vcrpy.readthedocs.io; `parsed_body` is pydantic-ai's.
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
from vllm_harness.extras.foreign.foreign import ForeignError, Loose, first_of_each, of_the_apis, path_of


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
    """The exchanges of the APIs in a file of this form. Raises ForeignError, naming file, line and key."""
    file = document.validated(_File, ForeignError)
    found = [each for each in file.interactions if of_the_apis(each.request.uri)]
    exchanges = tuple(_exchange(each, f"t{number}") for number, each in enumerate(found, start=1))
    return Cassette(cassette=1, recorded=Recorded(by="vcr"), exchanges=exchanges, count=len(exchanges))


def _exchange(interaction: _Interaction, name: str) -> RecordedExchange:
    sent = interaction.request
    content = _content(sent.body)
    body = sent.parsed_body if sent.parsed_body is not None else json_of(content)
    request = RecordedRequest(
        method=sent.method,
        path=path_of(sent.uri),
        headers=first_of_each(sent.headers),
        body=body,
        text=content.decode("utf-8", "replace") if body is None and content else None,
    )
    return RecordedExchange(turn=name, request=request, response=_response(interaction.response))


def _response(came: _Response) -> RecordedResponse:
    headers = first_of_each(came.headers)
    if came.parsed_body is not None:
        return RecordedResponse(status=came.status.code, headers=headers, body=came.parsed_body)
    content = _content(came.body)
    names = {name.lower() for name in headers}
    if "content-type" not in names and content.lstrip().startswith((b"data:", b"event:")):
        headers = {**headers, "content-type": "text/event-stream"}
    chunks = [(0.0, content)] if content else []
    return response_of(Exchange().answered(came.status.code, headers, chunks))


def _content(body: Any) -> bytes:
    """The bytes of a body, which stands by itself or under `string`."""
    held: Data | Any = body.get("string") if isinstance(body, dict) else body
    if isinstance(held, str):
        return held.encode("utf-8", "surrogateescape")
    return held if isinstance(held, bytes) else b""
