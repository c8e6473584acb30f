"""Reads HTTP archives (HAR), which browsers and proxies export.

Source: http://www.softwareishard.com/blog/har-12-spec/
"""

from __future__ import annotations

import base64
import binascii
import json
from pathlib import Path

from pydantic import ValidationError

from vllm_harness._cassettes.answers import json_of, response_of
from vllm_harness._cassettes.format import Cassette, Recorded, RecordedExchange, RecordedRequest
from vllm_harness._protocol import Exchange
from vllm_harness.extras.foreign.foreign import ForeignError, Loose, of_the_apis, path_of


class _Header(Loose):
    name: str
    value: str = ""


class _Posted(Loose):
    text: str = ""


class _Request(Loose):
    method: str
    url: str
    headers: tuple[_Header, ...] = ()
    postData: _Posted = _Posted()


class _Content(Loose):
    mimeType: str = ""
    text: str = ""
    encoding: str = ""


class _Response(Loose):
    status: int
    headers: tuple[_Header, ...] = ()
    content: _Content = _Content()


class _Entry(Loose):
    time: float = 0
    request: _Request
    response: _Response


class _Log(Loose):
    entries: list[_Entry]


class _File(Loose):
    log: _Log


def read(path: Path, text: str) -> Cassette:
    """Reads the API exchanges in an archive. Raises ForeignError, which names file, line and key."""
    try:
        file = _File.model_validate(json.loads(text))
    except json.JSONDecodeError as error:
        raise ForeignError(f"{path}:{error.lineno}: not JSON: {error.msg}", hint="export it again") from error
    except (ValidationError, RecursionError) as error:
        problems = error.errors() if isinstance(error, ValidationError) else []
        lines = [
            f"{path}:1: {'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in problems[:10]
        ]
        raise ForeignError("\n".join(lines) or f"{path}:1: nested too deeply") from error
    entries = [entry for entry in file.log.entries if of_the_apis(entry.request.url)]
    exchanges = tuple(_exchange(entry, f"t{number}") for number, entry in enumerate(entries, start=1))
    return Cassette(cassette=1, recorded=Recorded(by="har"), exchanges=exchanges, count=len(exchanges))


def _exchange(entry: _Entry, name: str) -> RecordedExchange:
    request, response = entry.request, entry.response
    headers = _by_name(response.headers)
    if response.content.mimeType and "content-type" not in {name.lower() for name in headers}:
        headers["content-type"] = response.content.mimeType
    posted = request.postData.text
    body = json_of(posted.encode("utf-8", "replace"))
    content = _bytes(response.content)
    seconds = max(entry.time, 0) / 1000
    return RecordedExchange(
        turn=name,
        request=RecordedRequest(
            method=request.method,
            path=path_of(request.url),
            headers=_by_name(request.headers),
            body=body,
            text=posted if body is None and posted else None,
        ),
        response=response_of(
            Exchange().answered(max(response.status, 0), headers, [(seconds, content)] if content else [])
        ),
    )


def _by_name(headers: tuple[_Header, ...]) -> dict[str, str]:
    return {header.name: header.value for header in headers}


def _bytes(content: _Content) -> bytes:
    if content.encoding == "base64":
        try:
            return base64.b64decode(content.text, validate=False)
        except binascii.Error:
            return b""
    return content.text.encode("utf-8", "replace")
