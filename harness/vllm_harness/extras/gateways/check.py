"""The cases both ways: to the server directly, and through the gateway before it."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import httpx2
import requests

from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._exchange.building import Ask
from vllm_harness._exchange.endpoint import API_PATHS, Endpoint, EndpointError
from vllm_harness._exchange.sending import Outgoing, async_http_client
from vllm_harness._protocol.core.events import Api, Json
from vllm_harness._protocol.core.findings import Finding
from vllm_harness._scripted.book import BookError, BookRule, ScriptBook, When
from vllm_harness._scripted.book_file import take_of
from vllm_harness._scripted.in_server.vllm_harness_names import BOOK_HEADER, DEFAULT_BOOK
from vllm_harness._terminal.status import Progress
from vllm_harness.extras.gateways import rules
from vllm_harness.extras.gateways.answers import Seen, SideExchange
from vllm_harness.extras.gateways.cases import APIS, Asked, GatewayCase
from vllm_harness.extras.gateways.compare import compare_answers
from vllm_harness.extras.gateways.requests import first, following, request_of
from vllm_harness.extras.gateways.sending import LEAVES_AFTER, send

AT_ONCE = 32
_CHANCE = {rules.GW116.code, rules.GW117.code}
"""Findings about times, which a busy machine can bring about: told only where they come every time."""
_TRIES = 3
_IDLE_S = 120.0
_LOOK_S = 0.1
_LOGGED_S = 5.0
_CHOICES = 2
"""Choices that a case asks for at most; each is told to say the same."""
_RUNNING = "vllm:num_requests_running"
_PROBE = GatewayCase(name="probe", user="Does the header arrive?", say="It arrives.")


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


@dataclass(frozen=True)
class Both:
    """What came both ways.

    Attributes:
        direct, gateway: exchanges by their names.
        findings: the differences, each with the name of its exchange.
        notes: what a reader has to know about the run.
    """

    direct: list[SideExchange] = field(default_factory=list)
    gateway: list[SideExchange] = field(default_factory=list)
    findings: list[tuple[str, Finding]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


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
            name: ScriptBook(endpoint, entry, name=name) for name in (f"gateway-{self._run}", DEFAULT_BOOK)
        }
        self._last = 0
        self._told: set[tuple[str, str]] = set()
        self.without_header: set[Api] = set()

    @property
    def book(self) -> str:
        """The name of the book that requests with the header are answered from."""
        return f"gateway-{self._run}"

    def mark(self, each: Asked) -> str:
        """What the server knows the requests of a case by."""
        return f"[{self._name(each)}]"

    def _name(self, each: Asked) -> str:
        return f"{self._run}-{each.name.replace('/', '-')}"

    def tell(self, each: Asked, side: GatewaySide) -> None:
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

    def seen(self, each: Asked, after: int, wanted: int) -> list[Seen]:
        """The requests of a case that the server answered after one, waiting for as many as are wanted."""
        until = time.monotonic() + _LOGGED_S
        while True:
            entries = [e for e in self._books[self.book].answered(after) if self._is_of(each, e)]
            if len(entries) >= wanted or time.monotonic() > until:
                return [Seen(e["api"], _sent(e["body"]), tuple(e["states"])) for e in entries]
            time.sleep(_LOOK_S)

    def seen_of_leaver(self, each: Asked, after: int) -> list[Seen]:
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

    def _is_of(self, each: Asked, entry: Json) -> bool:
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


async def record(
    side: GatewaySide,
    cases: Sequence[Asked],
    scripts: GatewayScripts | None,
    told: Progress,
    into: list[SideExchange],
) -> None:
    """Puts what one side answers to each case into a list, one after the other."""
    async with async_http_client() as client:
        for number, each in enumerate(cases, 1):
            told(f"{number} of {len(cases)}: {each.name}")
            into += await _held(client, side, each, scripts)


async def check(
    direct: GatewaySide,
    gateway: GatewaySide,
    cases: Sequence[Asked],
    scripts: GatewayScripts | None,
    told: Progress,
    *,
    at_once: int = AT_ONCE,
    into: Both | None = None,
) -> Both:
    """Every case both ways, and a crowd of streams at once.

    Args:
        scripts: of the scripted server behind; None where the model says what it will.
        at_once: streams at once, each with a text of its own; 0 for none.
        into: what is returned, filled case by case, so that a caller who is interrupted has what came.
    """
    both = into or Both()
    async with async_http_client() as client:
        if scripts is not None:
            both.notes.extend(await _probe(client, direct, gateway, cases, scripts))
        for number, each in enumerate(cases, 1):
            told(f"{number} of {len(cases)}: {each.name}")
            for _ in range(_TRIES):
                left = await _held(client, direct, each, scripts)
                right = await _held(client, gateway, each, scripts)
                found = _differences(left, right, content=scripts is not None)
                if not {finding.code for _, finding in found} & _CHANCE:
                    break
            both.direct.extend(left)
            both.gateway.extend(right)
            both.findings.extend(found)
        if scripts is not None and at_once:
            told(f"{at_once} streams at once")
            left = await _crowd(client, direct, cases, scripts, at_once)
            right = await _crowd(client, gateway, cases, scripts, at_once)
            known = {(f.code, f.path) for _, f in both.findings}
            found = _differences(left, right, content=True)
            both.findings.extend(
                (name, f) for name, f in found if (f.code, f.path) not in known and f.code not in _CHANCE
            )
            both.direct.extend(left)
            both.gateway.extend(right)
    return both


def _differences(
    left: Iterable[SideExchange], right: Iterable[SideExchange], *, content: bool
) -> list[tuple[str, Finding]]:
    through = {exchange.name: exchange for exchange in right}
    return [
        (exchange.name, finding)
        for exchange in left
        if exchange.name in through
        for finding in compare_answers(exchange, through[exchange.name], content=content)
    ]


async def _held(
    client: httpx2.AsyncClient, side: GatewaySide, each: Asked, scripts: GatewayScripts | None
) -> list[SideExchange]:
    """The exchanges of a case on one side."""
    ask: Ask | None = first(each, side.model, scripts.mark(each) if scripts else "")
    found: list[SideExchange] = []
    while ask is not None and len(found) < 2:
        name = f"{each.name}/{len(found) + 1}" if each.case.then is not None else each.name
        found.append(await _exchanged(client, side, each, scripts, name, request_of(each, ask)))
        came = found[-1]
        ask = following(each, ask, came) if 200 <= came.status < 300 else None
    return found


async def _exchanged(
    client: httpx2.AsyncClient,
    side: GatewaySide,
    each: Asked,
    scripts: GatewayScripts | None,
    name: str,
    request: Json,
) -> SideExchange:
    leaves = each.case.leaves and scripts is not None
    outgoing = _outgoing(each, side, request, scripts)
    if leaves and request.get("stream"):
        outgoing = replace(outgoing, leaves_after=LEAVES_AFTER)
    if scripts is None:
        return await send(client, name, outgoing, leaves=False)
    await asyncio.to_thread(scripts.tell, each, side)
    after = await asyncio.to_thread(scripts.seen_until_now)
    exchange = await send(client, name, outgoing, leaves=leaves)
    if each.case.leaves:
        seen = await asyncio.to_thread(scripts.seen_of_leaver, each, after)
    else:
        wanted = 1 if exchange.status < 400 else 0
        seen = await asyncio.to_thread(scripts.seen, each, after, wanted)
    return replace(exchange, seen=tuple(seen))


async def _probe(
    client: httpx2.AsyncClient,
    direct: GatewaySide,
    gateway: GatewaySide,
    cases: Sequence[Asked],
    scripts: GatewayScripts,
) -> list[str]:
    """Whether scripted requests arrive: directly at all, and through the gateway with their header.

    Raises:
        EndpointError: the scripted server is not behind the server that is asked directly.
    """
    notes = []
    for api in dict.fromkeys(each.api for each in cases):
        probe = Asked(_PROBE, api, False)
        sent = await _exchanged(client, direct, probe, scripts, probe.name, _first(probe, direct, scripts))
        if sent.status >= 400 or not sent.seen:
            raise EndpointError(
                f"a scripted request over {api} to {direct.endpoint.base_url} is not answered as scripted "
                f"(HTTP {sent.status} {sent.broken})",
                hint="name the scripted server by --books-url, and start it with `vllm-harness serve`",
            )
        through = await _exchanged(
            client, gateway, probe, scripts, probe.name, _first(probe, gateway, scripts)
        )
        if not through.status or through.status in (401, 403):
            raise EndpointError(
                f"{gateway.endpoint.base_url} does not answer a request over {api}: "
                f"HTTP {through.status} {through.broken}".rstrip(),
                hint="is the gateway started, and are its address and its key right?",
            )
        if not through.seen:
            scripts.without_header.add(api)
            notes.append(
                f"{api}: the header {BOOK_HEADER} does not arrive, so the server knows these requests by "
                "their text"
            )
    return notes


def _outgoing(each: Asked, side: GatewaySide, request: Json, scripts: GatewayScripts | None) -> Outgoing:
    headers = {BOOK_HEADER: scripts.book} if scripts else {}
    return Outgoing(side.endpoint, API_PATHS[each.api], request, headers)


def _first(each: Asked, side: GatewaySide, scripts: GatewayScripts) -> Json:
    return request_of(each, first(each, side.model, scripts.mark(each)))


async def _crowd(
    client: httpx2.AsyncClient,
    side: GatewaySide,
    cases: Sequence[Asked],
    scripts: GatewayScripts,
    number: int,
) -> list[SideExchange]:
    """Streams at once, each with a text of its own."""
    apis = list(dict.fromkeys(each.api for each in cases))
    crowd = [
        Asked(
            GatewayCase(
                name=f"at-once-{index:02}", user=f"Who are you, {index}?", say=f"I am number {index}. " * 6
            ),
            apis[index % len(apis)],
            True,
        )
        for index in range(number)
    ]
    for each in crowd:
        await asyncio.to_thread(scripts.tell, each, side)
    outgoing = (_outgoing(each, side, _first(each, side, scripts), scripts) for each in crowd)
    sent = (send(client, each.name, out, leaves=False) for each, out in zip(crowd, outgoing, strict=True))
    return list(await asyncio.gather(*sent))


def apis_of(endpoint: Endpoint) -> list[Api]:
    """The APIs that a server has.

    Raises:
        EndpointError: it does not answer.
    """
    try:
        lacking = endpoint.lacking()
    except requests.RequestException as error:
        raise EndpointError(
            f"{endpoint.base_url} does not answer: {error}",
            hint="is the server started, and is this its address?",
        ) from error
    return [api for api in APIS if api in API_PATHS and api not in lacking]
