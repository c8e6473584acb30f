"""Captures: recorded exchanges, read from files in several formats.

- `.sse`: the bytes of one stream
- `.jsonl`: an event or an exchange on each line
- `.json`: a body, a list of events, an exchange `{request, events | body, method, path, http_status}`, or a
  list of exchanges (also under `exchanges`)

If the suffix allows several, the content decides which it is. Cassettes (`.yaml`, `.har`) are read by
`vllm_harness._cassettes`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm_harness._protocol.bodies import has_kind, placed_as_in_stream, validate_body
from vllm_harness._protocol.conversation.checks import validate_conversation
from vllm_harness._protocol.conversation.compare import compare_stream, matters
from vllm_harness._protocol.conversation.exchange import Exchange
from vllm_harness._protocol.core.errors import ProtocolInputError
from vllm_harness._protocol.core.events import Api
from vllm_harness._protocol.core.findings import Finding
from vllm_harness._protocol.core.sse import parse_sse
from vllm_harness._protocol.streams import validate_stream

MAX_FILE_BYTES = 256 * 1024 * 1024
_PATHS = ("/responses", "/chat/completions", "/messages")
_SSE_FIELDS = ("data:", "event:", "id:", "retry:", ":")


@dataclass(frozen=True, slots=True)
class Capture:
    """The content of a capture file.

    Attributes:
        source: the name of the file.
        exchanges: the exchanges, in order.
        lines: for each exchange, the line number of each of its events; empty if unknown.
        begins: for each exchange, the number of its first line; empty if unknown.
        complete: whether the exchanges are a whole conversation.
    """

    source: str
    exchanges: Sequence[Exchange]
    lines: Sequence[Sequence[int]] = field(default=())
    begins: Sequence[int] = field(default=())
    complete: bool = False


def read_capture(path: Path | str) -> Capture:
    """Reads a capture file, or standard input if the path is `-`.

    Raises:
        ProtocolInputError: the file cannot be read, is too large, or is not a capture.
    """
    source = "(stdin)" if str(path) == "-" else str(path)
    data = _read(path, source)
    if source.endswith(".sse") or data.lstrip().startswith(tuple(name.encode() for name in _SSE_FIELDS)):
        return _stream_of_bytes(data, source)
    text = _text(data, source)
    if source.endswith(".jsonl"):
        return _lines(text, source)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        if source == "(stdin)" and "\n" in text.strip():
            return _lines(text, source)
        raise _bad_json(error, source, 1) from error
    return Capture(source, _exchanges(value, source))


def validate_capture(capture: Capture, *, api: Api | None = None) -> Iterator[tuple[int, Finding]]:
    """Checks every exchange of a capture, and the consistency between exchanges.

    Returns:
        Pairs of line number and finding: the line of the event if known, else that of the exchange, else 1.
    """
    for number, exchange in enumerate(capture.exchanges):
        lines = capture.lines[number] if capture.lines else ()
        first = capture.begins[number] if capture.begins else 1
        for finding in validate_exchange(exchange, api=api):
            index = finding.event_index
            yield first if index is None or index >= len(lines) else lines[index], finding
    if len(capture.exchanges) > 1:
        for finding in validate_conversation(capture.exchanges, complete=capture.complete):
            yield line_between(capture, finding), finding


def line_between(capture: Capture, finding: Finding) -> int:
    """The first line of the exchange that a finding about several exchanges names; 1 if unknown."""
    match = re.match(r"\$\[(\d+)\]", finding.path)
    number = int(match[1]) if match else -1
    return capture.begins[number] if 0 <= number < len(capture.begins) else 1


def check_not_empty(capture: Capture, *, api: Api | None = None) -> None:
    """Raises ProtocolInputError if nothing in a capture can be checked."""
    if any(_is_checkable(exchange, api) for exchange in capture.exchanges):
        return
    hint = "if the API cannot be inferred from a body, name it with --api"
    if not capture.exchanges:
        hint = f"of a cassette, only exchanges whose URI contains {' or '.join(_PATHS)} are read"
    raise ProtocolInputError(
        f"nothing to check in {len(capture.exchanges)} exchanges: they have neither streams of events nor "
        "bodies of Responses, Chat Completions or Messages",
        source=capture.source,
        hint=hint,
    )


def _is_checkable(exchange: Exchange, api: Api | None) -> bool:
    return exchange.events is not None or (exchange.body is not None and has_kind(exchange.body, api=api))


def validate_exchange(exchange: Exchange, *, api: Api | None = None) -> list[Finding]:
    """Checks the answer of one exchange; its request allows further checks."""
    request = exchange.request if exchange.method == "POST" and exchange.request else None
    if exchange.events is not None:
        resumed = "starting_after=" in exchange.path if exchange.path else None
        return validate_stream(exchange.events, api=api, request=request, resumed=resumed)
    return validate_body(exchange.body, api=api, request=request) if exchange.body is not None else []


def every_finding(exchange: Exchange) -> list[Finding]:
    """Checks the answer of one exchange by the rules of its API, and a stream against its terminal event.

    The paths of findings about a response body are those of a terminal event.
    """
    findings = validate_exchange(exchange, api=exchange.api)
    if exchange.events is not None:
        return findings + [finding for finding in compare_stream(exchange.events) if matters(finding)]
    return findings if exchange.body is None else placed_as_in_stream(findings, exchange.body)


def _read(path: Path | str, source: str) -> bytes:
    try:
        if source == "(stdin)":
            data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ProtocolInputError(
            error.strerror or str(error), source=source, hint="check the path and its permissions"
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise ProtocolInputError(
            f"the file is larger than {MAX_FILE_BYTES} bytes", source=source, hint="split the capture"
        )
    if not data.strip():
        raise ProtocolInputError(
            "the file is empty",
            source=source,
            hint="save what the server sent, such as the output of `curl -N`",
        )
    return data


def _text(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ProtocolInputError(
            "not valid UTF-8", source=source, line=line, hint="save the bytes unchanged"
        ) from error


def _bad_json(error: Exception, source: str, line: int) -> ProtocolInputError:
    at = line + error.lineno - 1 if isinstance(error, json.JSONDecodeError) else line
    return ProtocolInputError(f"not valid JSON: {error}", source=source, line=at)


def _stream_of_bytes(data: bytes, source: str) -> Capture:
    events = list(parse_sse([data]))
    if not events:
        raise ProtocolInputError(
            "no server-sent events", source=source, line=1, hint="event lines begin with `data:`"
        )
    return Capture(source, [Exchange(events=events)], [[event.line for event in events]])


def _lines(text: str, source: str) -> Capture:
    values: list[dict[str, Any]] = []
    lines: list[int] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _bad_json(error, source, number) from error
        if not isinstance(value, dict):
            raise ProtocolInputError("not a JSON object", source=source, line=number)
        values.append(value)
        lines.append(number)
    if all(_is_exchange(value) for value in values):
        return Capture(source, [_exchange(value, source) for value in values])
    return Capture(source, [Exchange(events=values)], [lines])


def _exchanges(value: object, source: str) -> list[Exchange]:
    if isinstance(value, dict):
        if "interactions" in value:
            message, hint = "VCR cassettes are read from `.yaml` files", "rename the file"
            raise ProtocolInputError(message, source=source, line=1, hint=hint)
        if isinstance(value.get("exchanges"), list):
            return [_exchange(part, source) for part in value["exchanges"]]
        return [_exchange(value, source)] if _is_exchange(value) else [Exchange(body=value)]
    if not isinstance(value, list) or not value or not all(isinstance(part, dict) for part in value):
        raise ProtocolInputError("neither a JSON object nor a list of objects", source=source, line=1)
    if all(_is_exchange(part) for part in value):
        return [_exchange(part, source) for part in value]
    return [Exchange(events=value)]


def _is_exchange(value: Mapping[str, Any]) -> bool:
    return "type" not in value and ("events" in value or "body" in value)


def _exchange(value: object, source: str) -> Exchange:
    if not isinstance(value, dict) or not _is_exchange(value):
        raise ProtocolInputError("an exchange has neither `events` nor `body`", source=source, line=1)
    events, body = value.get("events"), value.get("body")
    request, status = value.get("request"), value.get("http_status")
    if isinstance(events, list) and events and all(isinstance(event, dict) for event in events):
        body = None
    elif isinstance(body, dict):
        events = None
    else:
        raise ProtocolInputError(
            "`events` must be a list of objects, or `body` an object", source=source, line=1
        )
    return Exchange(
        request=request if isinstance(request, dict) else {},
        body=body,
        events=events,
        method=str(value.get("method") or "POST"),
        path=str(value.get("path") or ""),
        status=status if isinstance(status, int) else 200,
    )
