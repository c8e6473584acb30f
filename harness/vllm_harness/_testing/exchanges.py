"""Writes a test's exchanges into the run folder, with token ids, links to twins, and the server's log."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import requests

from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.server import VllmServer
from vllm_harness._files.redaction import REDACTED
from vllm_harness._runs.exchanges import json_value, record_of
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.records import ExchangeRecord, GenerationRecord, LogLines
from vllm_harness._scripted.in_server import vllm_harness_names as names
from vllm_harness._testing.cases import NOTED, Noted, case_id, facts_of
from vllm_harness._testing.session import BODY, TARGET
from vllm_harness._testing.traffic import SeenExchange, TrafficRecorder

EXAMPLES = 2
"""The number of passed tests whose exchanges are written because of the same known deviation."""
MOST_LINES, MOST_LOG = 400, 256 * 1024
TOKENS_TIMEOUT_S = 30.0
_SECRET_HEADERS = {"authorization", "x-api-key", "cookie", "set-cookie", "proxy-authorization"}
_HIDDEN_HEADERS = {names.EXCHANGE_HEADER, names.OWN_HEADER}

FAILED = pytest.StashKey[bool]()
EXCHANGES = pytest.StashKey["ExchangeWriter"]()
SERVED = pytest.StashKey[tuple[VllmServer, int, Endpoint]]()
"""The server, and the size of its log and its address when the test began."""


@dataclass
class ExchangeWriter:
    """Writes the exchanges of the tests that this process runs.

    Attributes:
        writer: writes the run folder; in a fork, it is replaced with the writer of a separate part.
        traffic: records the requests that this process sends.
        every: whether to write the exchanges of all tests; otherwise only those of tests with problems.
    """

    writer: RunWriter
    traffic: TrafficRecorder
    every: bool = False
    _pid: int = field(default_factory=os.getpid)
    _shown: Counter[str] = field(default_factory=Counter)

    def begin(self, item: pytest.Item, server: VllmServer) -> None:
        """Marks the start of a test, or of an attempt at it, on a server."""
        self.traffic.take()  # drops the harness's own requests
        offset = server.log_path.stat().st_size if server.log_path and server.log_path.exists() else 0
        item.stash[SERVED] = server, offset, server.endpoint

    def end(self, item: pytest.Item) -> dict[str, Any]:
        """Ends a test or an attempt: writes its exchanges if wanted, and returns data for its case record."""
        noted = item.stash.get(NOTED, [])
        seen = self.traffic.take()
        written = seen if seen and self._wanted(item, noted) else []
        if written:
            self._write(item, written)
        facts = facts_of(item, lambda finding: exchange_of(finding, written))
        item.stash[NOTED] = []  # another attempt starts without findings
        return facts

    def _write(self, item: pytest.Item, seen: Sequence[SeenExchange]) -> None:
        target = item.stash[TARGET].id
        case = case_id(item.nodeid, target)
        server, offset, own = item.stash.get(SERVED, (None, 0, Endpoint("")))
        books = server.books if server and server.lane == "attached" else None
        scripted = books or item.stash[TARGET].lane == "scripted"
        generations = _generations(seen, books, own) if scripted else {}
        exchanges = [record_of_seen(one, target, case, generations.get(one.id, [])) for one in seen]
        writer = self._own_writer()
        for exchange in with_twins(exchanges):
            writer.write(exchange)
        if server and server.log_path and (lines := _lines(server.log_path, offset)):
            writer.write(LogLines(target=target, case=case, source=str(server.log_path), lines=lines))

    def _wanted(self, item: pytest.Item, noted: Sequence[Noted]) -> bool:
        if self.every or item.stash.get(FAILED, False) or item.stash.get(BODY, None) == "defect":
            return True
        known = {one.finding.known for one in noted if one.finding.known}
        has_new = any(self._shown[reference] < EXAMPLES for reference in known)
        self._shown.update(known if has_new else ())
        return has_new

    def _own_writer(self) -> RunWriter:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self.writer = self.writer.part(f"fork-{self._pid}")
        return self.writer


def record_of_seen(
    seen: SeenExchange, target: str, case: str, generations: Sequence[GenerationRecord] = ()
) -> ExchangeRecord:
    """The record of an exchange."""
    first = generations[0] if generations else GenerationRecord()
    return record_of(
        seen.exchange,
        id=seen.id,
        target=target,
        case=case,
        at=seen.at,
        headers=_public_headers(seen.sent_headers),
        request=json_value(seen.content),
        answer_headers=_public_headers(seen.headers),
        prompt=first.prompt,
        output=first.output,
        further=tuple(generations[1:]),
    )


def with_twins(exchanges: Sequence[ExchangeRecord]) -> Iterator[ExchangeRecord]:
    """Yields the exchanges; two with the same request, of which one is streamed, name each other as twins."""
    single: dict[tuple[str, bool], list[str]] = {}
    twins: dict[str, str] = {}
    for exchange in exchanges:
        if not isinstance(exchange.request, dict):
            continue
        request = {key: value for key, value in exchange.request.items() if not key.startswith("stream")}
        key = exchange.path + json.dumps(request, sort_keys=True)
        streamed = exchange.request.get("stream") is True
        if others := single.get((key, not streamed)):
            other = others.pop(0)
            twins |= {exchange.id: other, other: exchange.id}
        else:
            single.setdefault((key, streamed), []).append(exchange.id)
    for exchange in exchanges:
        yield exchange.model_copy(update={"twin": twins[exchange.id]}) if exchange.id in twins else exchange


def exchange_of(noted: Noted, seen: Sequence[SeenExchange]) -> str:
    """The id of the exchange with a finding: the one with the answer's id, or the last that was answered."""
    if noted.answer:
        answer = noted.answer.encode()
        for exchange in seen:
            if any(answer in chunk for _, chunk in exchange.chunks):
                return exchange.id
    return next((exchange.id for exchange in reversed(seen) if exchange.chunks), "")


def _public_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {
        name: REDACTED if name.lower() in _SECRET_HEADERS else value
        for name, value in headers.items()
        if name.lower() not in _HIDDEN_HEADERS
    }


def _generations(
    seen: Sequence[SeenExchange], books: Endpoint | None, own: Endpoint
) -> dict[str, list[GenerationRecord]]:
    """The generations of the exchanges that scripted servers answered, by exchange id."""
    ids: dict[Endpoint, list[str]] = {}
    for exchange in seen:
        if exchange.asked.method == "POST" and exchange.status:
            server = books or replace(own, base_url=f"{exchange.url.scheme}://{exchange.url.netloc}")
            ids.setdefault(server, []).append(exchange.id)
    return dict(chain.from_iterable(_stored_by(server, own).items() for server, own in ids.items()))


def _stored_by(server: Endpoint, ids: Sequence[str]) -> dict[str, list[GenerationRecord]]:
    """The generations that a server has stored; empty if it has ended or is not scripted."""
    headers = {names.OWN_HEADER: "1"}
    try:
        answer = server.post(
            names.EXCHANGES_PATH, json={"names": ids}, headers=headers, timeout=TOKENS_TIMEOUT_S
        )
        answer.raise_for_status()
        stored = answer.json()["exchanges"]
        return {id: [GenerationRecord.model_validate(one) for one in own] for id, own in stored.items()}
    except (requests.RequestException, ValueError, KeyError):
        return {}


def _lines(log: Path, offset: int) -> tuple[str, ...]:
    """The lines of a log from an offset on, or the last of them if there are many."""
    with suppress(OSError), log.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(offset, end - MOST_LOG))
        return tuple(file.read().decode(errors="replace").splitlines()[-MOST_LINES:])
    return ()
