"""Cassette files of every form: read strictly; every problem is named by file, line and key."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from vllm_harness._cassettes.answers import exchange_of
from vllm_harness._cassettes.format import VERSION, Cassette, RecordedExchange
from vllm_harness._errors import UsageError
from vllm_harness._extensions import RECORDINGS, load
from vllm_harness._files.located_yaml import Document, Location, read_text, read_yaml
from vllm_harness._files.strict import keys_of
from vllm_harness._protocol.captures import Capture

MAX_BYTES = 32 * 2**20
_ARCHIVES = tuple(ending for ending in RECORDINGS if ending.startswith("."))
WHOLE = ("", "scenario", "replay")
"""What records whole conversations; a proxy may have come in later."""
ENDINGS = (".yaml", ".yml", ".yaml.gz", ".yml.gz", *_ARCHIVES)
"""How the names of files end that are read here."""


class CassetteError(UsageError):
    """The file is no cassette, or not a whole one; the message names file, line and key."""


@dataclass(frozen=True)
class Read:
    """A cassette, and where its parts stand in the file.

    Attributes:
        cassette: what was read.
        path: of the file.
        capture: the same for the validator, with the lines of exchanges and events.
    """

    cassette: Cassette
    path: Path
    capture: Capture


def is_cassette(name: str) -> bool:
    """Whether a file's name is one of a cassette, of whatever form."""
    return name.endswith(ENDINGS)


def read(path: Path) -> Read:
    """Reads a cassette, or a file of agentic-api, of VCR, or an HTTP archive.

    Raises:
        UsageError: naming file, line and key of every problem.
    """
    if path.name.endswith(_ARCHIVES):
        reader = load(RECORDINGS[_ARCHIVES[0]], f"to read {path.name}")
        return _without_places(reader(path, read_text(path, max_bytes=MAX_BYTES)), path)
    document = read_yaml(path, max_bytes=MAX_BYTES)
    content = document.data
    if isinstance(content, dict) and "cassette" not in content and (keys := RECORDINGS.keys() & content):
        return _without_places(load(RECORDINGS[min(keys)], f"to read {path.name}")(document), path)
    return _placed(_own(document), document)


def _own(document: Document) -> Cassette:
    _check_version(document)
    content = document.data
    if "count" not in content and isinstance(content.get("exchanges"), list):
        count = len(content["exchanges"])
        raise CassetteError(
            f"{document.path}:{_last_line(document)}: count: the file ends without it, so it was cut, or is "
            "still being recorded",
            hint=f"record it anew; or, where these exchanges are all, add the line `count: {count}`",
        )
    cassette = document.validated(Cassette, CassetteError, _keys_at)
    if problems := list(_problems(cassette)):
        lines = (
            f"{document.path}:{document.line(place)}: {'.'.join(map(str, place))}: {message}"
            for place, message in problems
        )
        raise CassetteError("\n".join(lines))
    return cassette


def _check_version(document: Document) -> None:
    content = document.data
    if not isinstance(content, dict) or "cassette" not in content:
        raise CassetteError(
            f"{document.path}:1: cassette: the version of the format is missing",
            hint="a cassette begins with `cassette: 1`; files of agentic-api have `turns`, those of VCR "
            "`interactions`, HTTP archives `log`",
        )
    if content["cassette"] is True or content["cassette"] != VERSION:
        line = document.line(("cassette",))
        raise CassetteError(
            f"{document.path}:{line}: cassette: version {content['cassette']!r} of the format is unknown",
            hint=f"this harness reads version {VERSION}",
        )


def _problems(cassette: Cassette) -> Iterator[tuple[Location, str]]:
    """What is wrong between the parts of a cassette."""
    if cassette.count != len(cassette.exchanges):
        less = cassette.count - len(cassette.exchanges)
        what = f"{less} are missing" if less > 0 else f"{-less} are more than that"
        yield (
            ("count",),
            f"{cassette.count} exchanges were recorded, and {len(cassette.exchanges)} are here: {what}",
        )
    seen: set[str] = set()
    for number, exchange in enumerate(cassette.exchanges):
        place: Location = ("exchanges", number)
        if exchange.turn in seen:
            yield (*place, "turn"), f"there is a turn {exchange.turn!r} already"
        if exchange.after is not None and exchange.after not in seen:
            yield (*place, "after"), f"the turn {exchange.after!r}, which it continues, is not above it"
        seen.add(exchange.turn)
        times = [chunk.at for chunk in exchange.response.sse or ()]
        late = next((at for at in range(1, len(times)) if times[at] < times[at - 1]), None)
        if late is not None:
            yield (*place, "response", "sse", late, "at"), "the time is before that of the chunk above"


def _last_line(document: Document) -> int:
    mark = document.root.end_mark
    return int(mark.line if mark.column == 0 else mark.line + 1)


def _without_places(cassette: Cassette, path: Path) -> Read:
    capture = Capture(str(path), [exchange_of(exchange) for exchange in cassette.exchanges])
    return Read(cassette, path, capture)


def _placed(cassette: Cassette, document: Document) -> Read:
    lines = [document.line(("exchanges", number)) for number in range(len(cassette.exchanges))]
    exchanges = [exchange_of(exchange) for exchange in cassette.exchanges]
    events = [
        _event_lines(exchange, came.events, document, number)
        for number, (exchange, came) in enumerate(zip(cassette.exchanges, exchanges, strict=True))
    ]
    whole = cassette.recorded.by in WHOLE
    return Read(cassette, document.path, Capture(str(document.path), exchanges, events, lines, whole))


def _event_lines(
    exchange: RecordedExchange, events: Sequence[Any] | None, document: Document, number: int
) -> list[int]:
    """The line of the file on which each event of a stream begins; the exchange's where that is not known."""
    begins, blocks, at = [1], [0], 1
    for index, chunk in enumerate(exchange.response.sse or ()):
        node = document.node(("exchanges", number, "response", "sse", index, "data"))
        block = isinstance(node, yaml.ScalarNode) and node.style == "|"
        begins.append(at)
        blocks.append(node.start_mark.line + 2 if block and node is not None else 0)
        at += chunk.content.count(b"\n")
    lines = []
    for event in events or ():
        held = bisect_right(begins, event.line) - 1
        line = (
            blocks[held] + event.line - begins[held] if blocks[held] else document.line(("exchanges", number))
        )
        lines.append(line)
    return lines


def _keys_at(location: Location) -> Collection[str]:
    """The keys of a mapping in a cassette, for suggestions."""
    return keys_of(Cassette, location)


def schema() -> dict[str, Any]:
    """The JSON Schema of a cassette's file."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Cassette.model_json_schema()}
