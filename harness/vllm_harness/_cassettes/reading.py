"""Reads cassettes and other tools' recordings strictly; errors name the file, the line and the key."""

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
"""The values of `Recorded.by` for whole conversations; a proxy may start recording in the middle of one."""
ENDINGS = (".yaml", ".yml", ".yaml.gz", ".yml.gz", *_ARCHIVES)
"""The suffixes of files that can be read."""


class CassetteError(UsageError):
    """A file is not a valid or complete cassette; the message names the file, the line and the key."""


@dataclass(frozen=True)
class LoadedCassette:
    """A cassette that was read from a file.

    Attributes:
        cassette: the cassette.
        path: the path of the file.
        capture: its exchanges as input for the validator, with the line numbers of exchanges and events.
    """

    cassette: Cassette
    path: Path
    capture: Capture


def is_cassette(name: str) -> bool:
    """Whether a file name has the suffix of a cassette or of another tool's recording."""
    return name.endswith(ENDINGS)


def read(path: Path) -> LoadedCassette:
    """Reads a cassette, or a recording of agentic-api, VCR or an HTTP archive.

    Raises:
        UsageError: the file is invalid; the message names the file, the line and the key of every problem.
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
    hint = "a cassette begins with `cassette: 1`; agentic-api has `turns`, VCR `interactions`, HAR `log`"
    document.check_version("cassette", VERSION, CassetteError, hint)
    content = document.data
    if "count" not in content and isinstance(content.get("exchanges"), list):
        count = len(content["exchanges"])
        raise CassetteError(
            f"{document.path}:{_last_line(document)}: count: missing at the end of the file, which is "
            "truncated or still being recorded",
            hint=f"record it again, or add the line `count: {count}` if no exchange is missing",
        )
    cassette = document.validated(Cassette, CassetteError, _keys_at)
    if problems := list(_problems(cassette)):
        raise CassetteError("\n".join(document.problem(*problem) for problem in problems))
    return cassette


def _problems(cassette: Cassette) -> Iterator[tuple[Location, str]]:
    """Finds contradictions between the parts of a cassette."""
    if cassette.count != len(cassette.exchanges):
        yield ("count",), f"{cassette.count}, but the file has {len(cassette.exchanges)} exchanges"
    seen: set[str] = set()
    for number, exchange in enumerate(cassette.exchanges):
        place: Location = ("exchanges", number)
        if exchange.turn in seen:
            yield (*place, "turn"), f"another turn is also named {exchange.turn!r}"
        if exchange.after is not None and exchange.after not in seen:
            yield (*place, "after"), f"it continues turn {exchange.after!r}, which is not above it"
        seen.add(exchange.turn)
        times = [chunk.at for chunk in exchange.response.sse or ()]
        early = next((index for index in range(1, len(times)) if times[index] < times[index - 1]), None)
        if early is not None:
            yield (*place, "response", "sse", early, "at"), "the time is before that of the chunk above"


def _last_line(document: Document) -> int:
    mark = document.root.end_mark
    return int(mark.line if mark.column == 0 else mark.line + 1)


def _without_places(cassette: Cassette, path: Path) -> LoadedCassette:
    capture = Capture(str(path), [exchange_of(exchange) for exchange in cassette.exchanges])
    return LoadedCassette(cassette, path, capture)


def _placed(cassette: Cassette, document: Document) -> LoadedCassette:
    lines = [document.line(("exchanges", number)) for number in range(len(cassette.exchanges))]
    exchanges = [exchange_of(exchange) for exchange in cassette.exchanges]
    events = [
        _event_lines(exchange, came.events, document, number)
        for number, (exchange, came) in enumerate(zip(cassette.exchanges, exchanges, strict=True))
    ]
    whole = cassette.recorded.by in WHOLE
    return LoadedCassette(
        cassette, document.path, Capture(str(document.path), exchanges, events, lines, whole)
    )


def _event_lines(
    exchange: RecordedExchange, events: Sequence[Any] | None, document: Document, number: int
) -> list[int]:
    """Finds the line of each event of a stream; the exchange's line if the event's is unknown."""
    begins, blocks, at = [1], [0], 1
    for index, chunk in enumerate(exchange.response.sse or ()):
        node = document.node(("exchanges", number, "response", "sse", index, "data"))
        block = isinstance(node, yaml.ScalarNode) and node.style == "|"
        begins.append(at)
        blocks.append(node.start_mark.line + 2 if block and node is not None else 0)
        at += chunk.content.count(b"\n")
    lines = []
    for event in events or ():
        place = bisect_right(begins, event.line) - 1
        in_block = blocks[place] + event.line - begins[place]
        lines.append(in_block if blocks[place] else document.line(("exchanges", number)))
    return lines


def _keys_at(location: Location) -> Collection[str]:
    """Lists the keys of a mapping in a cassette, for suggestions."""
    return keys_of(Cassette, location)


def schema() -> dict[str, Any]:
    """Makes the JSON Schema of cassette files."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Cassette.model_json_schema()}
