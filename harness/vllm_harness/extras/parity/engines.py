"""`vllm-harness regression engines`: where a server answers otherwise than its parsers in process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import typer
from rich.console import Console

from vllm_harness._exchange.delivery import Delivery
from vllm_harness._regression.engines.plan import Engine
from vllm_harness._regression.results.cells import CaseResult, Cell, RegressionRun
from vllm_harness._regression.results.mismatches import Mismatch
from vllm_harness._terminal.tables import show_table
from vllm_harness.cli.regression_options import console


@dataclass(frozen=True)
class EngineDifference:
    """A case that a server answers differently from parsers in process, with the mismatches of both."""

    environment: str
    family: str
    case: str
    delivery: Delivery
    in_process: tuple[Mismatch, ...]
    http: tuple[Mismatch, ...]


def engines(run: Annotated[str, typer.Argument(help="A run with cells of both engines.")]) -> None:
    """List answers that differ between the engines, HTTP and in process; exit 1 if any do."""
    compared, differences = engine_differences(RegressionRun.named(run).cells())
    show_engine_differences(console, differences)
    console.print(f"{compared} answers compared, {len(differences)} differ")
    raise typer.Exit(1 if differences else 0)


def engine_differences(cells: Iterable[Cell]) -> tuple[int, list[EngineDifference]]:
    """Compares the engines case by case; returns the number of compared answers, and the differences."""
    by_engine: dict[Engine, dict[tuple[str, str, str], Cell]] = {"in-process": {}, "http": {}}
    for cell in cells:
        by_engine[cell.engine][cell.environment, cell.family, cell.group] = cell
    compared = 0
    differences: list[EngineDifference] = []
    for key in sorted(by_engine["http"].keys() & by_engine["in-process"].keys()):
        served, parsed = by_engine["http"][key], by_engine["in-process"][key]
        for name in served.cases.keys() & parsed.cases.keys():
            compared += len(served.cases[name].digests)
            differences += _case_differences(served, name, served.cases[name], parsed.cases[name])
    return compared, differences


def _case_differences(
    cell: Cell, name: str, served: CaseResult, parsed: CaseResult
) -> Iterator[EngineDifference]:
    for delivery, digest in served.digests.items():
        equivalents = _same_in_process(delivery)
        if digest not in map(parsed.digests.get, equivalents):
            in_process = parsed.mismatches.get(equivalents[0], ())
            http = served.mismatches.get(delivery, ())
            yield EngineDifference(cell.environment, cell.family, name, delivery, in_process, http)


def _same_in_process(delivery: Delivery) -> tuple[Delivery, ...]:
    """Returns in-process deliveries, one of which must have the same outcome as an HTTP delivery."""
    same = replace(delivery, api=None, load=None)
    return (same, replace(same, with_end=True)) if same.is_streamed else (same,)


def show_engine_differences(console: Console, differences: Sequence[EngineDifference]) -> None:
    """Prints the cases whose answers from a server differ from those in process."""
    rows = []
    for difference in differences:
        sides = (", ".join(map(str, side)) or "passed" for side in (difference.in_process, difference.http))
        place = (difference.case, difference.family, difference.environment, difference.delivery.code)
        rows.append((*place, *sides))
    if rows:
        headings = ("case", "family", "environment", "delivery", "in process", "over HTTP")
        show_table(console, headings, rows)
