"""The scripted server behind a gateway: what it answers to each case, and the requests that it received."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass, replace

from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._protocol.core.events import Api, Json
from vllm_harness._scripted.book import BookError, BookRule, ScriptBook, When
from vllm_harness._scripted.book_file import take_of
from vllm_harness._scripted.in_server.vllm_harness_names import DEFAULT_BOOK
from vllm_harness.extras.gateways.answers import ReceivedRequest
from vllm_harness.extras.gateways.cases import CaseVariant

_IDLE_S = 120.0
_LOOK_S = 0.1
_LOGGED_S = 5.0
_CHOICES = 2
"""Choices that a case asks for at most; each is told to say the same."""
_RUNNING = "vllm:num_requests_running"


@dataclass(frozen=True)
class GatewaySide:
    """One way to the model.

    Attributes:
        name: `direct` or `gateway`.
        endpoint: its address, with the headers that it wants.
        model: the name to ask for.
    """

    name: str
    endpoint: Endpoint
    model: str


class GatewayScripts:
    """What the scripted server behind both ways is told, and what it saw.

    Args:
        endpoint: address of the scripted server.
        entry: its model entry.
    """

    def __init__(self, endpoint: Endpoint, entry: ModelEntry) -> None:
        self._endpoint = endpoint
        self._run = secrets.token_hex(3)
        self._books = {
            name: ScriptBook(endpoint, entry, name) for name in (f"gateway-{self._run}", DEFAULT_BOOK)
        }
        self._last = 0
        self._told: set[tuple[str, str]] = set()
        self.without_header: set[Api] = set()

    @property
    def book(self) -> str:
        """The name of the book that requests with the header are answered from."""
        return f"gateway-{self._run}"

    def mark(self, each: CaseVariant) -> str:
        """What the server knows the requests of a case by."""
        return f"[{self._name(each)}]"

    def _name(self, each: CaseVariant) -> str:
        return f"{self._run}-{each.name.replace('/', '-')}"

    def tell(self, each: CaseVariant, side: GatewaySide) -> None:
        """Tells the server what the model says to a case."""
        lost = side.name == "gateway" and each.api in self.without_header
        book = DEFAULT_BOOK if lost else self.book
        if each.case.broken is not None or (book, each.name) in self._told:
            return
        self._told.add((book, each.name))
        case = each.case
        mark = re.escape(self.mark(each))
        says = [("", case.say), *([(" then", case.then)] if case.then is not None else [])]
        for turn, (more, say) in enumerate(says):
            when = When(message={"role": "user", "text": mark}, turn=turn)
            self._books[book].add(
                BookRule(
                    f"{self._name(each)}{more}",
                    (take_of(say),) * _CHOICES,
                    when=when,
                    times=None,
                    constrained=case.constrained,
                    expect=case.expect,
                )
            )

    def seen_until_now(self) -> int:
        """The number of the last request that the server answered."""
        entries = self._books[self.book].answered(self._last)
        self._last = int(entries[-1]["number"]) if entries else self._last
        return self._last

    def seen(self, each: CaseVariant, after: int, wanted: int) -> list[ReceivedRequest]:
        """The requests of a case that the server answered after one, waiting for as many as are wanted."""
        until = time.monotonic() + _LOGGED_S
        while True:
            entries = [e for e in self._books[self.book].answered(after) if self._is_of(each, e)]
            if len(entries) >= wanted or time.monotonic() > until:
                return [ReceivedRequest(e["api"], _sent(e["body"]), tuple(e["states"])) for e in entries]
            time.sleep(_LOOK_S)

    def seen_of_leaver(self, each: CaseVariant, after: int) -> list[ReceivedRequest]:
        """The requests of a client that left, once the server is idle again."""
        until = time.monotonic() + _IDLE_S
        while self._endpoint.metrics().get(_RUNNING, 0.0) > 0 and time.monotonic() < until:
            time.sleep(_LOOK_S)
        found = self.seen(each, after, 1)
        uses = [use for book in self._books.values() for use in book.report()["uses"]]
        mine = [use for use in uses if str(use["script"]) == self._name(each)]
        states = (
            [tuple(g["state"] for g in use["generations"]) for use in mine[-len(found) :]] if found else []
        )
        return [replace(seen, states=state) for seen, state in zip(found, states, strict=False)]

    def close(self) -> None:
        """Drops the book of this run."""
        self._books[self.book].close()

    def _is_of(self, each: CaseVariant, entry: Json) -> bool:
        script = str(entry["script"])
        if each.case.broken is None:
            return script in (self._name(each), f"{self._name(each)} then")
        return self.mark(each) in str(entry["user"])


def _sent(body: Json | None) -> Json | None:
    """A body as it came, without what the scripted server put in."""
    return None if body is None else {key: value for key, value in body.items() if key != "vllm_xargs"}


def scripts_of(books: Endpoint, entry: ModelEntry) -> GatewayScripts | None:
    """The scripts of a scripted server; None where it is none."""
    if entry.stand_in is None:
        return None
    try:
        scripts = GatewayScripts(books, entry)
        scripts.seen_until_now()
    except BookError:
        return None
    return scripts
