"""Sends the cases both ways: to the server directly, and through the gateway in front of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import httpx2
import requests

from vllm_harness._exchange.building import TurnRequest
from vllm_harness._exchange.endpoint import API_PATHS, Endpoint, EndpointError
from vllm_harness._exchange.sending import Outgoing, async_http_client
from vllm_harness._protocol.core.events import Api, Json
from vllm_harness._protocol.core.findings import Finding
from vllm_harness._scripted.in_server.vllm_harness_names import BOOK_HEADER
from vllm_harness._terminal.status import Progress
from vllm_harness.extras.gateways import rules
from vllm_harness.extras.gateways.answers import SideExchange
from vllm_harness.extras.gateways.cases import APIS, CaseVariant, GatewayCase
from vllm_harness.extras.gateways.compare import compare_sides
from vllm_harness.extras.gateways.requests import first, following, request_of
from vllm_harness.extras.gateways.scripts import GatewayScripts, GatewaySide
from vllm_harness.extras.gateways.sending import LEAVES_AFTER, send

AT_ONCE = 32
_BY_CHANCE = {rules.GW116.code, rules.GW117.code}
_TRIES = 3
"""How often a case with findings of `_BY_CHANCE` is repeated; every try must have one for them to count.

GW116 compares times, and GW117 what a gateway sends: a busy machine can make a gateway merge deltas, although
the scripted server behind it delivers exactly one token in each.
"""
_PROBE = GatewayCase(name="probe", user="Does the header arrive?", say="It arrives.")


@dataclass(frozen=True)
class GatewayCheck:
    """The results of a check.

    Attributes:
        direct, gateway: the exchanges of each side.
        findings: the differences, each with the name of its exchange.
        notes: remarks about the run for the reader.
    """

    direct: list[SideExchange] = field(default_factory=list)
    gateway: list[SideExchange] = field(default_factory=list)
    findings: list[tuple[str, Finding]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


async def record(
    side: GatewaySide,
    cases: Sequence[CaseVariant],
    scripts: GatewayScripts | None,
    progress: Progress,
    exchanges: list[SideExchange],
) -> None:
    """Sends each case to one side, and appends the exchanges to a list."""
    async with async_http_client(side.endpoint) as client:
        for number, variant in enumerate(cases, 1):
            progress(f"{number} of {len(cases)}: {variant.name}")
            exchanges += await _run_case(client, side, variant, scripts)


async def check(
    direct: GatewaySide,
    gateway: GatewaySide,
    cases: Sequence[CaseVariant],
    scripts: GatewayScripts | None,
    progress: Progress,
    *,
    at_once: int = AT_ONCE,
    into: GatewayCheck | None = None,
) -> GatewayCheck:
    """Sends every case both ways, then many streams at once.

    Args:
        direct, gateway: the two sides, to which the requests are sent.
        cases: the cases, each over one API.
        scripts: the scripted server behind both; None if the server is not scripted.
        progress: is called with a line for each case.
        at_once: the number of streams at once, each with a different text; 0 for none.
        into: the object to fill and return; it has the results so far if the check is interrupted.
    """
    result = into or GatewayCheck()
    async with async_http_client(direct.endpoint) as client:
        if scripts is not None:
            result.notes.extend(await _probe(client, direct, gateway, cases, scripts))
        for number, variant in enumerate(cases, 1):
            progress(f"{number} of {len(cases)}: {variant.name}")
            for _ in range(_TRIES):
                left = await _run_case(client, direct, variant, scripts)
                right = await _run_case(client, gateway, variant, scripts)
                findings = compare_sides(left, right, content=scripts is not None)
                if not {finding.code for _, finding in findings} & _BY_CHANCE:
                    break
            result.direct.extend(left)
            result.gateway.extend(right)
            result.findings.extend(findings)
        if scripts is not None and at_once:
            progress(f"{at_once} streams at once")
            left = await _concurrent_streams(client, direct, cases, scripts, at_once)
            right = await _concurrent_streams(client, gateway, cases, scripts, at_once)
            seen = {(f.code, f.path) for _, f in result.findings}
            findings = compare_sides(left, right, content=True)
            result.findings.extend(
                (name, f) for name, f in findings if (f.code, f.path) not in seen and f.code not in _BY_CHANCE
            )
            result.direct.extend(left)
            result.gateway.extend(right)
    return result


async def _run_case(
    client: httpx2.AsyncClient, side: GatewaySide, variant: CaseVariant, scripts: GatewayScripts | None
) -> list[SideExchange]:
    """Sends the one or two requests of a case to one side."""
    ask: TurnRequest | None = first(variant, side.model, scripts.mark(variant) if scripts else "")
    exchanges: list[SideExchange] = []
    while ask is not None and len(exchanges) < 2:
        name = f"{variant.name}/{len(exchanges) + 1}" if variant.case.then is not None else variant.name
        exchange = await _exchange(client, side, variant, scripts, name, request_of(variant, ask))
        exchanges.append(exchange)
        ask = following(variant, ask, exchange) if 200 <= exchange.status < 300 else None
    return exchanges


async def _exchange(
    client: httpx2.AsyncClient,
    side: GatewaySide,
    variant: CaseVariant,
    scripts: GatewayScripts | None,
    name: str,
    request: Json,
) -> SideExchange:
    leaves = variant.case.leaves and scripts is not None
    outgoing = _outgoing(variant, side, request, scripts)
    if leaves and request.get("stream"):
        outgoing = replace(outgoing, leaves_after=LEAVES_AFTER)
    if scripts is None:
        return await send(client, name, outgoing, leaves=False)
    await asyncio.to_thread(scripts.add_rules, variant, side)
    after = await asyncio.to_thread(scripts.last_number)
    exchange = await send(client, name, outgoing, leaves=leaves)
    if variant.case.leaves:
        seen = await asyncio.to_thread(scripts.received_before_leaving, variant, after)
    else:
        wanted = 1 if exchange.status < 400 else 0
        seen = await asyncio.to_thread(scripts.received, variant, after, wanted)
    return replace(exchange, seen=tuple(seen))


async def _probe(
    client: httpx2.AsyncClient,
    direct: GatewaySide,
    gateway: GatewaySide,
    cases: Sequence[CaseVariant],
    scripts: GatewayScripts,
) -> list[str]:
    """Checks that scripted requests arrive, directly and through the gateway; returns notes about headers.

    Raises:
        EndpointError: the scripted server is not behind the direct side, or the gateway does not answer.
    """
    notes = []
    for api in _apis_in(cases):
        probe = CaseVariant(_PROBE, api, False)
        sent = await _exchange(client, direct, probe, scripts, probe.name, _first(probe, direct, scripts))
        if sent.status >= 400 or not sent.seen:
            raise EndpointError(
                f"a scripted request over {api} to {direct.endpoint.base_url} is not answered as scripted "
                f"(HTTP {sent.status} {sent.broken})",
                hint="start the scripted server with `vllm-harness serve`, and name it with --books-url",
            )
        through = await _exchange(
            client, gateway, probe, scripts, probe.name, _first(probe, gateway, scripts)
        )
        if not through.status or through.status in (401, 403):
            raise EndpointError(
                f"{gateway.endpoint.base_url} does not answer a request over {api}: "
                f"HTTP {through.status} {through.broken}".rstrip(),
                hint="check that the gateway runs, and that its address and key are right",
            )
        if not through.seen:
            scripts.without_header.add(api)
            notes.append(
                f"{api}: the gateway drops the header {BOOK_HEADER}, so the server recognizes these requests "
                "by their text"
            )
    return notes


def _outgoing(
    variant: CaseVariant, side: GatewaySide, request: Json, scripts: GatewayScripts | None
) -> Outgoing:
    headers = {BOOK_HEADER: scripts.book} if scripts else {}
    return Outgoing(side.endpoint, API_PATHS[variant.api], request, headers)


def _first(variant: CaseVariant, side: GatewaySide, scripts: GatewayScripts) -> Json:
    return request_of(variant, first(variant, side.model, scripts.mark(variant)))


async def _concurrent_streams(
    client: httpx2.AsyncClient,
    side: GatewaySide,
    cases: Sequence[CaseVariant],
    scripts: GatewayScripts,
    number: int,
) -> list[SideExchange]:
    """Requests several streams at once, each with a different text."""
    apis = _apis_in(cases)
    variants = [
        CaseVariant(
            GatewayCase(
                name=f"at-once-{index:02}", user=f"Who are you, {index}?", say=f"I am number {index}. " * 6
            ),
            apis[index % len(apis)],
            True,
        )
        for index in range(number)
    ]
    for variant in variants:
        await asyncio.to_thread(scripts.add_rules, variant, side)
    outgoing = (
        (variant.name, _outgoing(variant, side, _first(variant, side, scripts), scripts))
        for variant in variants
    )
    sent = (send(client, name, request, leaves=False) for name, request in outgoing)
    return list(await asyncio.gather(*sent))


def _apis_in(cases: Sequence[CaseVariant]) -> list[Api]:
    return list(dict.fromkeys(variant.api for variant in cases))


def apis_of(endpoint: Endpoint) -> list[Api]:
    """The APIs that a server offers.

    Raises:
        EndpointError: the server does not answer.
    """
    try:
        lacking = endpoint.lacking()
    except requests.RequestException as error:
        raise EndpointError(
            f"{endpoint.base_url} does not answer: {error}",
            hint="check that the server runs, and that this is its address",
        ) from error
    return [api for api in APIS if api in API_PATHS and api not in lacking]
