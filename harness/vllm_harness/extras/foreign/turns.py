"""Reads and writes the format of agentic-api: `turns`, each with a request and its answer.

Source: `record_cassette.py` and the cassettes of https://github.com/vllm-project/agentic-api.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import yaml
from pydantic import Field

from vllm_harness._cassettes.format import (
    Cassette,
    Data,
    Recorded,
    RecordedChunk,
    RecordedExchange,
    RecordedRequest,
    RecordedResponse,
)
from vllm_harness._cassettes.writing import without_secrets
from vllm_harness._files.located_yaml import Document
from vllm_harness._files.redaction import Redactor
from vllm_harness.extras.foreign.foreign import ForeignError, Loose


class _Request(Loose):
    method: str = "POST"
    path: str
    query_params: dict[str, Any] = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)
    body: Any = None


class _Response(Loose):
    status_code: int = 200
    headers: dict[str, str] = Field(default_factory=dict)
    body: Any = None
    sse: list[Data] | None = None
    stream_error: Any = None


class _Turn(Loose):
    filename: str = ""
    request: _Request
    response: _Response


class _File(Loose):
    turns: list[_Turn]


def read(document: Document) -> Cassette:
    """Reads a file of this format. Raises ForeignError, which names file, line and key."""
    file = document.validated(_File, ForeignError)
    names = [turn.filename for turn in file.turns]
    unique = all(names) and len(set(names)) == len(names)
    exchanges = tuple(
        _exchange(turn, turn.filename if unique else f"t{number}")
        for number, turn in enumerate(file.turns, start=1)
    )
    recorded = Recorded(by="agentic-api")
    return Cassette(cassette=1, recorded=recorded, exchanges=exchanges, count=len(exchanges))


def _exchange(turn: _Turn, name: str) -> RecordedExchange:
    request, response = turn.request, turn.response
    query = f"?{urlencode(request.query_params, doseq=True)}" if request.query_params else ""
    sse = None if response.sse is None else tuple(RecordedChunk(at=0, data=line) for line in response.sse)
    return RecordedExchange(
        turn=name,
        request=RecordedRequest(
            method=request.method, path=request.path + query, headers=request.headers, body=request.body
        ),
        response=RecordedResponse(
            status=response.status_code,
            headers=response.headers,
            body=response.body if sse is None else None,
            sse=sse,
            broken="" if response.stream_error is None else str(response.stream_error),
        ),
    )


def written(cassette: Cassette, redactor: Redactor) -> str:
    """Formats a cassette in this format: with sorted keys, and a stream as a list of its lines."""
    turns = [_turn(without_secrets(exchange, redactor)) for exchange in cassette.exchanges]
    text: str = yaml.safe_dump({"turns": turns}, allow_unicode=True, default_flow_style=False)
    return text


def _turn(exchange: dict[str, Any]) -> dict[str, Any]:
    request, response = exchange["request"], exchange["response"]
    url = urlsplit(request["path"])
    answer: dict[str, Any] = {
        "status_code": response["status"],
        "headers": _headers(response, "content-type"),
    }
    if "sse" in response:
        content = b"".join(_bytes(chunk["data"]) for chunk in response["sse"])
        answer["sse"] = [line.decode("utf-8", "replace") for line in content.splitlines(keepends=True)]
    else:
        answer["body"] = response.get("body", response.get("text"))
    if response.get("broken"):
        answer["stream_error"] = response["broken"]
    return {
        "filename": exchange["turn"],
        "request": {
            "method": request["method"],
            "path": url.path,
            "query_params": dict(parse_qsl(url.query)),
            "headers": _headers(request, "accept", "authorization", "content-type", "user-agent", "x-run-id"),
            "body": request.get("body", request.get("text")),
        },
        "response": answer,
    }


def _headers(side: dict[str, Any], *names: str) -> dict[str, str]:
    kept = {name: value for name, value in side.get("headers", {}).items() if name in names}
    return {**kept, **({"authorization": "Bearer ***"} if "authorization" in kept else {})}


def _bytes(data: Data) -> bytes:
    return data.encode() if isinstance(data, str) else data
