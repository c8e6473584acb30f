"""`vllm-harness gateway`: what a gateway changes in the answers of the server behind it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from vllm_harness._configuration.model_entries import ModelEntry, load_models
from vllm_harness._defects.registry import gateway_deviations
from vllm_harness._errors import UsageError
from vllm_harness._exchange.endpoint import Endpoint, attach
from vllm_harness._files.paths import run_folder
from vllm_harness._machine import interrupts
from vllm_harness._protocol.marking import apply_known
from vllm_harness._terminal.status import shown
from vllm_harness._terminal.tables import one_line, plain_console, show_table
from vllm_harness.extras.gateways import recording
from vllm_harness.extras.gateways.answers import SideExchange
from vllm_harness.extras.gateways.cases import CaseVariant, case_variants
from vllm_harness.extras.gateways.check import AT_ONCE, GatewayCheck, apis_of, check, record
from vllm_harness.extras.gateways.compare import compare_sides
from vllm_harness.extras.gateways.findings import GatewayDifference, merge_findings
from vllm_harness.extras.gateways.scripts import GatewayScripts, GatewaySide, scripts_of

app = typer.Typer(help="Compare the answers through a gateway with those of the server behind it.")
console = plain_console()


@dataclass(frozen=True)
class RequestOptions:
    """The options that choose the requests, and say how they are sent."""

    books_url: str = ""
    gateway_model: str = ""
    header: list[str] | None = None
    api_key_env: str | None = None
    server_api_key_env: str | None = None
    only: list[str] | None = None
    models_file: Path | None = None

    def entry(self, model: str) -> ModelEntry:
        """The model entry with this name."""
        return load_models(self.models_file).get(model)

    def endpoint(self, url: str) -> Endpoint:
        """The endpoint to which the requests go, with the key and the headers."""
        return _with_headers(attach(url, self.api_key_env), self.header or [])

    def books(self) -> Endpoint | None:
        """The scripted server that --books-url names."""
        return attach(self.books_url, self.server_api_key_env) if self.books_url else None

    def cases(self, endpoint: Endpoint, entry: ModelEntry, *, scripted: bool) -> list[CaseVariant]:
        """The cases that --only leaves. Raises UsageError if there is none."""
        cases = list(case_variants(apis_of(endpoint), entry.capabilities, self.only or (), scripted=scripted))
        if not cases:
            raise UsageError(
                f"no case matches {' or '.join(self.only or ['this model and server'])}",
                hint="use patterns such as --only 'chat/*' or --only '*/loop*'",
            )
        return cases


@app.command("check")
def check_(
    url: Annotated[str, typer.Argument(help="The address of the gateway.")],
    server_url: str,
    model: str,
    *,
    options: RequestOptions,
    concurrency: int = AT_ONCE,
    product: str = "",
    output: Path | None = None,
    json_: bool = False,
) -> None:
    """Send the same requests to a server directly and through a gateway, and print the differences.

    --server-url is the server behind the gateway. If it is scripted
    (`vllm-harness serve`), both answers must be the same; with any other server,
    only the shape of the answers is compared. --only accepts patterns such as
    'chat/loop*'. Faults in the server itself do not count. The exit code is 1 for
    an error or a warning that is not a known defect of --product (NAME==VERSION).
    """
    entry = options.entry(model)
    server = attach(server_url, options.server_api_key_env)
    direct = GatewaySide("direct", server, _served(server, entry))
    gateway = GatewaySide("gateway", options.endpoint(url), options.gateway_model or direct.model)
    known = gateway_deviations(product)
    scripts = scripts_of(options.books() or server, entry)
    cases = options.cases(server, entry, scripted=scripts is not None)
    folder = output or run_folder("gateways", time.strftime("%Y%m%d-%H%M%S"))
    result = GatewayCheck()
    recordings = {folder / "direct": (direct, result.direct), folder / "gateway": (gateway, result.gateway)}
    with _recorded(recordings, scripts), shown() as progress:
        asyncio.run(check(direct, gateway, cases, scripts, progress, at_once=concurrency, into=result))
    marked = apply_known([finding for _, finding in result.findings], known, "0")
    names = [name for name, _ in result.findings]
    notes = (
        result.notes if scripts else ["the server is not scripted: only the shape of the answers is compared"]
    )
    if _show(merge_findings(zip(names, marked, strict=True)), len(result.direct), notes, str(folder), json_):
        raise typer.Exit(1)


@app.command("record")
def record_(
    url: Annotated[str, typer.Argument(help="The address of the server, or of the gateway.")],
    model: str,
    output: Path,
    *,
    options: RequestOptions,
) -> None:
    """Send the requests to one server, and store its answers for `compare`."""
    entry = options.entry(model)
    endpoint = options.endpoint(url)
    side = GatewaySide("direct", endpoint, options.gateway_model or _served(endpoint, entry))
    books = options.books()
    scripts = scripts_of(books, entry) if books else None
    if books and scripts is None:
        raise UsageError(
            f"{options.books_url} is not a scripted server", hint="start one: vllm-harness serve MODEL"
        )
    cases = options.cases(endpoint, entry, scripted=scripts is not None)
    exchanges: list[SideExchange] = []
    with _recorded({output: (side, exchanges)}, scripts), shown() as progress:
        asyncio.run(record(side, cases, scripts, progress, exchanges))
    console.print(f"{len(exchanges)} answers of {endpoint.base_url}: {output}")


def compare_recordings(first: Path, second: Path, product: str, as_json: bool) -> bool:
    """Prints the differences between two recordings; returns whether there is an error or a warning.

    The content is compared if both servers were scripted; otherwise, only the
    shape of the answers is compared.
    """
    (left, before), (right, after) = recording.read(first), recording.read(second)
    common = before.keys() & after.keys()
    if not common:
        raise UsageError(f"{first} and {second} have no request in common", hint="record the same cases")
    content = left.scripted and right.scripted
    findings = compare_sides(before.values(), after.values(), content=content)
    known = gateway_deviations(product)
    marked = apply_known([finding for _, finding in findings], known, "0")
    notes = [] if content else ["not scripted: only the shape of the answers is compared"]
    differences = merge_findings(zip([name for name, _ in findings], marked, strict=True))
    return _show(differences, len(common), notes, f"{first} {second}", as_json)


@contextmanager
def _recorded(
    recordings: Mapping[Path, tuple[GatewaySide, Sequence[SideExchange]]], scripts: GatewayScripts | None
) -> Iterator[None]:
    """Writes the recordings when the block ends; if it fails, prints where they are."""

    def write() -> None:
        for folder, (side, exchanges) in recordings.items():
            recording.write(folder, side.endpoint.base_url, side.model, scripts is not None, exchanges)

    try:
        yield
    except BaseException:
        if any(exchanges for _, exchanges in recordings.values()):
            write()
            interrupts.keep(next(iter(recordings)).parent)
            folders = " ".join(map(str, recordings))
            print(
                f"not all requests were sent; the answers so far, for `compare`: {folders}",
                file=sys.stderr,
                flush=True,
            )
        raise
    else:
        write()
    finally:
        if scripts is not None:
            scripts.close()


def _served(endpoint: Endpoint, entry: ModelEntry) -> str:
    models = endpoint.models()
    return next(
        (name for name in (entry.name, entry.hub.id) if name in models), models[0] if models else entry.name
    )


def _with_headers(endpoint: Endpoint, given: Sequence[str]) -> Endpoint:
    headers = []
    for header in given:
        name, colon, value = header.partition(":")
        if not colon or not name.strip():
            raise UsageError(f"--header {header!r} is not a header", hint="write it as 'name: value'")
        headers.append((name.strip().lower(), value.strip()))
    return replace(endpoint, headers=tuple(headers))


def _show(
    differences: Sequence[GatewayDifference], exchanges: int, notes: Sequence[str], folder: str, as_json: bool
) -> bool:
    """Prints the differences; returns whether there is an error or a warning."""
    counted = sum(difference.finding.counts for difference in differences)
    if as_json:
        whole = {
            "exchanges": exchanges,
            "counted": counted,
            "notes": notes,
            "recordings": folder,
            "differences": [difference.as_json() for difference in differences],
        }
        print(json.dumps(whole, indent=1, ensure_ascii=False))
    else:
        rows = [_row(difference) for difference in differences]
        if rows:
            show_table(console, ("rule", "severity", "what differs", "server", "gateway", "where"), rows)
        for note in notes:
            console.print(f"note: {note}")
        known = sum(bool(difference.finding.known) for difference in differences)
        console.print(
            f"{exchanges} requests, {len(differences)} differences: {counted} errors and warnings, "
            f"{known} known, {len(differences) - counted - known} for information"
        )
        console.print(f"recordings: {folder}")
    return bool(counted)


def _row(difference: GatewayDifference) -> tuple[str, ...]:
    finding = difference.finding
    more = f" and {len(difference.names) - 1} more" if len(difference.names) > 1 else ""
    known = f" [known: {finding.known}]" if finding.known else ""
    return (
        finding.code,
        str(finding.severity),
        one_line(f"{finding.path}: {finding.message}{known}"),
        one_line(finding.expected, 60),
        one_line(finding.actual, 60),
        f"{difference.names[0]}{more}",
    )
