"""Writes cassette files without secrets, whole or exchange by exchange, but never half an exchange."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from vllm_harness._cassettes.answers import text_of
from vllm_harness._cassettes.format import (
    VERSION,
    Cassette,
    Data,
    Recorded,
    RecordedChunk,
    RecordedExchange,
    RecordedRequest,
    RecordedResponse,
)
from vllm_harness._errors import UsageError
from vllm_harness._files.redaction import REDACTED, Redactor

KEPT_HEADERS = frozenset(
    {
        *("accept", "content-type", "user-agent", "retry-after", "server"),
        *("x-request-id", "request-id", "x-run-id", "anthropic-version", "anthropic-beta", "openai-beta"),
        *("openai-version", "openai-processing-ms"),
    }
)
"""Headers that are kept, with secrets in them redacted."""
SECRET_HEADERS = frozenset(
    {
        *("authorization", "proxy-authorization", "x-api-key", "api-key", "cookie", "set-cookie"),
        *("x-goog-api-key", "x-auth-token"),
    }
)
"""Headers whose value is replaced; all others are left out."""
_TEXTS = frozenset(
    {"delta", "content", "text", "arguments", "partial_json", "thinking", "reasoning", "reasoning_content"}
)
"""Keys of an event whose text may be split over several events."""


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: Any, text: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


class _Row(list[int]):
    """A list that is written on one line."""


def _row(dumper: Any, row: _Row) -> Any:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", row, flow_style=True)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(_Row, _row)


def check_writable(path: Path) -> None:
    """Raises UsageError if a cassette cannot be written to a path."""
    if not path.name.endswith((".yaml", ".yml", ".yaml.gz", ".yml.gz")):
        raise UsageError(f"{path} is not a cassette name", hint="use a name that ends in .yaml or .yaml.gz")
    if not path.parent.is_dir():
        raise UsageError(f"the folder {path.parent} does not exist", hint="create it first")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"cannot write {path}", hint="choose another file")


def write(cassette: Cassette, path: Path, redactor: Redactor) -> None:
    """Writes a cassette atomically: a reader sees either the old or the new file."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(_packed(dumped(cassette, redactor), path))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def dumped(cassette: Cassette, redactor: Redactor) -> str:
    """Makes the text of a cassette file."""
    parts = [_head(cassette.title, cassette.recorded, redactor)]
    parts += [_item(exchange, redactor) for exchange in cassette.exchanges]
    return "".join(parts) + ("" if cassette.exchanges else "  []\n") + _end(len(cassette.exchanges))


class CassetteWriter:
    """Writes a cassette exchange by exchange, so that nothing is lost if the process is killed.

    Args:
        path: the path of the file, which is replaced if it exists.
        title, recorded: the attributes of `Cassette` with these names.
        redactor: redacts secrets.
    """

    def __init__(self, path: Path, title: str, recorded: Recorded, redactor: Redactor) -> None:
        self._path, self._redactor = path, redactor
        self.count = 0
        path.write_bytes(_packed(_head(title, recorded, redactor), path))

    def add(self, exchange: RecordedExchange) -> None:
        """Writes an exchange."""
        self._append(_item(exchange, self._redactor))
        self.count += 1

    def end(self) -> None:
        """Writes the end of the file, without which it counts as truncated."""
        self._append(("" if self.count else "  []\n") + _end(self.count))

    def _append(self, text: str) -> None:
        with self._path.open("ab") as file:
            file.write(_packed(text, self._path))


def _packed(text: str, path: Path) -> bytes:
    """Encodes a part of a file; in a compressed file, each part is a gzip member."""
    data = text.encode()
    return gzip.compress(data, mtime=0) if path.name.endswith(".gz") else data


def _head(title: str, recorded: Recorded, redactor: Redactor) -> str:
    head = {"cassette": VERSION, **({"title": title} if title else {})}
    head["recorded"] = redactor.value(recorded.model_dump(mode="json", exclude_defaults=True))
    return f"{_yaml(head)}exchanges:\n"


def _end(count: int) -> str:
    return f"count: {count}\n"


def _item(exchange: RecordedExchange, redactor: Redactor) -> str:
    return _yaml([without_secrets(exchange, redactor)])


def _yaml(data: Any) -> str:
    text: str = yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**16, default_flow_style=False
    )
    return text.removesuffix("...\n")  # the end marker that follows a string with trailing newlines


def without_secrets(exchange: RecordedExchange, redactor: Redactor) -> dict[str, Any]:
    """Converts an exchange to plain data, without secrets and empty values."""
    request, response = exchange.request, exchange.response
    seconds, stream = response.seconds, response.sse
    redacted = RecordedExchange(
        turn=exchange.turn,
        after=exchange.after,
        outputs=tuple(
            output.model_copy(update={"output": redactor.text(output.output)}) for output in exchange.outputs
        ),
        request=RecordedRequest(
            method=request.method,
            path=redactor.text(request.path),
            headers=kept_headers(request.headers, redactor),
            body=redactor.value(request.body),
            text=_data(request.text, redactor),
        ),
        response=RecordedResponse(
            status=response.status,
            headers=kept_headers(response.headers, redactor),
            seconds=None if seconds is None else round(seconds, 6),
            body=redactor.value(response.body),
            text=_data(response.text, redactor),
            sse=None if stream is None else tuple(_stream(stream, redactor)),
            broken=redactor.text(response.broken),
        ),
    )
    plain = redacted.model_dump(exclude_defaults=True)
    plain["request"] = {"method": request.method, **plain["request"]}
    return plain | ({"tokens": list(map(_Row, exchange.tokens))} if exchange.tokens else {})


def kept_headers(headers: Mapping[str, str], redactor: Redactor) -> dict[str, str]:
    """Selects the headers that a cassette keeps, and converts their names to lower case."""
    kept = {}
    for name, value in headers.items():
        lower = name.lower()
        if lower in SECRET_HEADERS:
            kept[lower] = REDACTED
        elif lower in KEPT_HEADERS or lower.startswith("x-stainless-"):
            kept[lower] = redactor.text(value)
    return kept


def _data(data: Data | None, redactor: Redactor) -> Data | None:
    if data is None:
        return None
    content = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    return text_of(redactor.chunks([content])[0])


def _stream(stream: Sequence[RecordedChunk], redactor: Redactor) -> Iterator[RecordedChunk]:
    contents = redactor.chunks(_without_secrets_in_pieces([chunk.content for chunk in stream], redactor))
    for chunk, content in zip(stream, contents, strict=True):
        yield RecordedChunk(at=round(chunk.at, 6), data=text_of(content))


def _without_secrets_in_pieces(chunks: Sequence[bytes], redactor: Redactor) -> list[bytes]:
    """Redacts secrets that are split over several events of a stream."""
    lines = list(_lines(chunks))
    events = {number: event for number, (_, line) in enumerate(lines) if (event := _event(line)) is not None}
    pieces: dict[str, list[tuple[int, dict[str, Any], str]]] = {}
    for number, event in events.items():
        for place, holder, key in _texts(event, str(event.get("type"))):
            pieces.setdefault(place, []).append((number, holder, key))
    changed = set()
    for of_text in pieces.values():
        texts = [holder[key] for _, holder, key in of_text]
        for (number, holder, key), before, after in zip(
            of_text, texts, redactor.pieces(texts, also_alone=True), strict=True
        ):
            if before != after:
                holder[key] = after
                changed.add(number)
    if not changed:
        return list(chunks)
    rewritten = [b""] * len(chunks)
    for number, (chunk, line) in enumerate(lines):
        if number in changed:
            end = line[len(line.rstrip(b"\r\n")) :]
            line = b"data: " + json.dumps(events[number], ensure_ascii=False).encode() + end
        rewritten[chunk] += line
    return rewritten


def _lines(chunks: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yields the lines of a stream, each with the number of the chunk in which it begins."""
    rest, start = b"", 0
    for number, chunk in enumerate(chunks):
        for line in chunk.splitlines(keepends=True):
            start = start if rest else number
            rest += line
            if rest.endswith(b"\n"):
                yield start, rest
                rest = b""
    if rest:
        yield start, rest


def _event(line: bytes) -> dict[str, Any] | None:
    if not line.startswith(b"data:"):
        return None
    try:
        value = json.loads(line[5:])
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _texts(value: Any, place: str) -> Iterable[tuple[str, dict[str, Any], str]]:
    """Yields the strings of an event that other events may continue: place, mapping and key of each."""
    if isinstance(value, dict):
        own = "/".join(f"{value.get(name, '')}" for name in ("output_index", "content_index", "index"))
        for key, each in value.items():
            if isinstance(each, str) and key in _TEXTS:
                yield f"{place}/{own}/{key}", value, key
            elif isinstance(each, (dict, list)):
                yield from _texts(each, f"{place}/{own}/{key}")
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, place)
