"""The scripted server behind a gateway: what it answers to each case, and the requests that it received."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass, replace

from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._exchange.delivery import Chunking, Delivery
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
"""The maximum number of choices that a case requests; all have the same text."""
_RUNNING = "vllm:num_requests_running"


@dataclass(frozen=True)
class GatewaySide:
    """One way to reach the model.

    Attributes:
        name: `direct` or `gateway`.
        endpoint: the address, with the headers that it requires.
        model: the model's name at this address.
    """

    name: str
    endpoint: Endpoint
    model: str


class GatewayScripts:
    """The script books of the scripted server behind both sides, and the requests that it received.

    Args:
        endpoint: the address of the scripted server.
        entry: its model entry.

    Attributes:
        without_header: the APIs over which the gateway drops the header of script books.
    """

    def __init__(self, endpoint: Endpoint, entry: ModelEntry) -> None:
        self._endpoint = endpoint
        self._run = secrets.token_hex(3)
        self._books = {
            name: ScriptBook(endpoint, entry, name=name) for name in (f"gateway-{self._run}", DEFAULT_BOOK)
        }
        self._last = 0
        self._added: set[tuple[str, str]] = set()
        self.without_header: set[Api] = set()

    @property
    def book(self) -> str:
        """The name of the book that answers requests with the header."""
        return f"gateway-{self._run}"

    def mark(self, variant: CaseVariant) -> str:
        """The text by which the server recognizes the requests of a case."""
        return f"[{self._name(variant)}]"

    def _name(self, variant: CaseVariant) -> str:
        return f"{self._run}-{variant.name.replace('/', '-')}"

    def add_rules(self, variant: CaseVariant, side: GatewaySide) -> None:
        """Adds the rules that script what the model says in a case."""
        lost = side.name == "gateway" and variant.api in self.without_header
        book = DEFAULT_BOOK if lost else self.book
        if variant.case.broken is not None or (book, variant.name) in self._added:
            return
        self._added.add((book, variant.name))
        case = variant.case
        mark = re.escape(self.mark(variant))
        says = [("", case.say), *([(" then", case.then)] if case.then is not None else [])]
        for turn, (suffix, say) in enumerate(says):
            when = When(message={"role": "user", "text": mark}, turn=turn)
            self._books[book].add(
                BookRule(
                    f"{self._name(variant)}{suffix}",
                    (take_of(say),) * _CHOICES,
                    when=when,
                    times=None,
                    constrained=case.constrained,
                    delivery=Delivery(Chunking.TOKENS, tokens=1),
                    expect=case.expect,
                )
            )

    def last_number(self) -> int:
        """The number of the last request that the server answered."""
        entries = self._books[self.book].answered(self._last)
        self._last = int(entries[-1]["number"]) if entries else self._last
        return self._last

    def received(self, variant: CaseVariant, after: int, wanted: int) -> list[ReceivedRequest]:
        """The requests of a case that the server answered after request number `after`.

        Waits until there are as many requests as wanted, but only for some seconds.
        """
        until = time.monotonic() + _LOGGED_S
        while True:
            entries = [e for e in self._books[self.book].answered(after) if self._is_of(variant, e)]
            if len(entries) >= wanted or time.monotonic() > until:
                return [ReceivedRequest(e["api"], _sent(e["body"]), tuple(e["states"])) for e in entries]
            time.sleep(_LOOK_S)

    def received_before_leaving(self, variant: CaseVariant, after: int) -> list[ReceivedRequest]:
        """Waits until the server is idle; returns the requests of a case whose client left."""
        until = time.monotonic() + _IDLE_S
        while self._endpoint.metrics().get(_RUNNING, 0.0) > 0 and time.monotonic() < until:
            time.sleep(_LOOK_S)
        received = self.received(variant, after, 1)
        uses = [use for book in self._books.values() for use in book.report()["uses"]]
        mine = [use for use in uses if str(use["script"]) == self._name(variant)]
        states = (
            [tuple(g["state"] for g in use["generations"]) for use in mine[-len(received) :]]
            if received
            else []
        )
        return [replace(request, states=state) for request, state in zip(received, states, strict=False)]

    def close(self) -> None:
        """Deletes the book of this run."""
        self._books[self.book].close()

    def _is_of(self, variant: CaseVariant, entry: Json) -> bool:
        script = str(entry["script"])
        if variant.case.broken is None:
            return script in (self._name(variant), f"{self._name(variant)} then")
        return self.mark(variant) in str(entry["user"])


def _sent(body: Json | None) -> Json | None:
    """The body without the field that the scripted server adds."""
    return None if body is None else {key: value for key, value in body.items() if key != "vllm_xargs"}


def scripts_of(books: Endpoint, entry: ModelEntry) -> GatewayScripts | None:
    """The scripts of a server; None if it is not scripted."""
    if entry.stand_in is None:
        return None
    try:
        scripts = GatewayScripts(books, entry)
        scripts.last_number()
    except BookError:
        return None
    return scripts
