"""The exchanges of a test in a run folder: as they were seen, with their tokens, twins and server's log."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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
from vllm_harness._testing.watch import SeenExchange, Watch

SHOWN_TWICE = 2
"""Tests that passed are kept for a known deviation that so many others have not shown before."""
MOST_LINES, MOST_LOG = 400, 256 * 1024
ASKED_S = 30.0
_SECRET_HEADERS = {"authorization", "x-api-key", "cookie", "set-cookie", "proxy-authorization"}
_NOT_SHOWN = {names.EXCHANGE_HEADER, names.OWN_HEADER}

FAILED = pytest.StashKey[bool]()
KEEPER = pytest.StashKey["ExchangeKeeper"]()
SERVED = pytest.StashKey[tuple[VllmServer, int]]()  # and where its log ended when the test began


@dataclass
class ExchangeKeeper:
    """Writes the exchanges of the tests that this process runs, as far as they are wanted.

    Attributes:
        writer: of the run; a fork writes a part of its own.
        watch: what this process sends.
        every: whether those of the tests that passed are wanted as well.
    """

    writer: RunWriter
    watch: Watch
    every: bool = False
    _pid: int = field(default_factory=os.getpid)
    _shown: Counter[str] = field(default_factory=Counter)

    def begin(self, item: pytest.Item, server: VllmServer) -> None:
        """At the beginning of a test, or of an attempt, with its server."""
        self.watch.taken()  # the harness's own questions
        offset = server.log_path.stat().st_size if server.log_path and server.log_path.exists() else 0
        item.stash[SERVED] = server, offset

    def settle(self, item: pytest.Item) -> dict[str, Any]:
        """At the end of a test, or of an attempt: writes what is wanted, gives what its case has of it."""
        seen = self.watch.taken()
        noted = item.stash.get(NOTED, [])
        if not seen or not self._wanted(item, noted):
            return self._facts(item, lambda _: "")
        target = item.stash[TARGET].id
        case = case_id(item.nodeid, target)
        server, offset = item.stash.get(SERVED, (None, 0))
        behind = server.books if server and server.lane == "attached" else None
        scripted = behind or item.stash[TARGET].lane == "scripted"
        generations = _generations(seen, behind) if scripted else {}
        exchanges = [record_of_seen(each, target, case, generations.get(each.id, [])) for each in seen]
        writer = self._own_writer()
        for exchange in with_twins(exchanges):
            writer.write(exchange)
        if server and server.log_path and (lines := _lines(server.log_path, offset)):
            writer.write(LogLines(target=target, case=case, source=str(server.log_path), lines=lines))
        return self._facts(item, lambda each: exchange_of(each, seen))

    def _facts(self, item: pytest.Item, place: Callable[[Noted], str]) -> dict[str, Any]:
        """Those of this attempt: a further one begins anew."""
        facts = facts_of(item, place)
        item.stash[NOTED] = []
        return facts

    def _wanted(self, item: pytest.Item, noted: Sequence[Noted]) -> bool:
        if self.every or item.stash.get(FAILED, False) or item.stash.get(BODY, None) == "defect":
            return True
        known = {each.finding.known for each in noted if each.finding.known}
        new = [each for each in known if self._shown[each] < SHOWN_TWICE]
        self._shown.update(known if new else ())
        return bool(new)

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
        headers=_shown_headers(seen.sent_headers),
        request=json_value(seen.content),
        answer_headers=_shown_headers(seen.headers),
        prompt=first.prompt,
        output=first.output,
        further=tuple(generations[1:]),
    )


def with_twins(exchanges: Sequence[ExchangeRecord]) -> Iterator[ExchangeRecord]:
    """The exchanges; where two ask the same, streamed and not, each names the other."""
    open_: dict[tuple[str, bool], list[str]] = {}
    twins: dict[str, str] = {}
    for exchange in exchanges:
        if not isinstance(exchange.request, dict):
            continue
        asked = {key: value for key, value in exchange.request.items() if not key.startswith("stream")}
        key = exchange.path + json.dumps(asked, sort_keys=True)
        streamed = exchange.request.get("stream") is True
        if waiting := open_.get((key, not streamed)):
            other = waiting.pop(0)
            twins |= {exchange.id: other, other: exchange.id}
        else:
            open_.setdefault((key, streamed), []).append(exchange.id)
    for exchange in exchanges:
        yield exchange.model_copy(update={"twin": twins[exchange.id]}) if exchange.id in twins else exchange


def exchange_of(noted: Noted, seen: Sequence[SeenExchange]) -> str:
    """The exchange in whose answer a finding is: by the answer's id, else the last that has an answer."""
    if noted.answer:
        wanted = noted.answer.encode()
        for each in seen:
            if any(wanted in chunk for _, chunk in each.chunks):
                return each.id
    return next((each.id for each in reversed(seen) if each.chunks), "")


def _shown_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {
        name: REDACTED if name.lower() in _SECRET_HEADERS else value
        for name, value in headers.items()
        if name.lower() not in _NOT_SHOWN
    }


def _generations(seen: Sequence[SeenExchange], books: Endpoint | None) -> dict[str, list[GenerationRecord]]:
    """The tokens of the exchanges that scripted servers answered."""
    wanted: dict[Endpoint, list[str]] = {}
    for each in seen:
        if each.asked.method == "POST" and each.status:
            asked = books or Endpoint(f"{each.url.scheme}://{each.url.netloc}")
            wanted.setdefault(asked, []).append(each.id)
    return dict(chain.from_iterable(_told(each, ids).items() for each, ids in wanted.items()))


def _told(endpoint: Endpoint, ids: Sequence[str]) -> dict[str, list[GenerationRecord]]:
    """What a server tells of exchanges; nothing where it has ended, or is none that is scripted."""
    try:
        own = {names.OWN_HEADER: "1"}
        answer = endpoint.post(names.EXCHANGES_PATH, json={"names": ids}, headers=own, timeout=ASKED_S)
        answer.raise_for_status()
        told = answer.json()["exchanges"]
        return {
            name: [GenerationRecord.model_validate(each) for each in given] for name, given in told.items()
        }
    except (requests.RequestException, ValueError, KeyError):
        return {}


def _lines(log: Path, offset: int) -> tuple[str, ...]:
    """What a log has got since then: the last of it, where that is much."""
    with suppress(OSError), log.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(offset, end - MOST_LOG))
        return tuple(file.read().decode(errors="replace").splitlines()[-MOST_LINES:])
    return ()
