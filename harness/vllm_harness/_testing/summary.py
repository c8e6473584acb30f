"""Prints the summary of a run on one screen: a table, the failures, and the paths of files with details."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from vllm_harness._configuration.targets import Target
from vllm_harness._defects.registry import Defects
from vllm_harness._exchange.endpoint import API_PATHS
from vllm_harness._terminal.tables import Cell, on_terminal, one_line, show_table
from vllm_harness._testing import quality, repeats
from vllm_harness._testing.results import TargetResult

MAX_LISTED = 10
"""The maximum number of failures, of reason codes and of repeated cases that are listed."""
HEADINGS = ("target", "start", "passed", "known", "failed", "skipped")
_LINE = 150
"""The maximum length of a failure's line if the output is not a terminal."""


def show(
    console: Console,
    targets: Iterable[Target],
    results: Mapping[str, TargetResult],
    report: Path,
    defects: Defects,
    *,
    listed: bool = False,
) -> None:
    """Prints the summary of a run.

    Args:
        console: a console without markup.
        targets: the targets, in the order of the table.
        results: the results, by target.
        report: the file with all details.
        defects: the known defects, which name the product of each known deviation.
        listed: whether pytest has just listed the failed tests, so that a few of them need not be repeated.
    """
    rows = [_row(target.id, results[target.id]) for target in targets if target.id in results]
    show_table(console, HEADINGS, rows, numbers=HEADINGS[1:], whole=True)
    for name, result in results.items():
        if summed := repeats.summary(result.trials):
            _show_repeats(console, name, summed)
    for line in [*_about_servers(results), *_about_tests(results, defects)]:
        console.print(line)
    for line in _failures(results, console.width if on_terminal(console) else _LINE, listed):
        console.print(line)
    console.print(f"every failure, known defect and skip by test: {report}")
    console.print(f"logs and results: {report.parent}")


def counts(name: str, result: TargetResult) -> list[str]:
    """The row of a target in the table."""
    start = "-" if result.startup_s is None else f"{result.startup_s:.1f} s"
    number = result.counts()
    return [name, start, *(str(number[heading]) for heading in HEADINGS[2:])]


def _row(name: str, result: TargetResult) -> list[Cell]:
    number = result.counts()
    bad = number["failed"] or result.gone
    colour = "red" if bad else "green" if number["passed"] else "yellow"
    first, *others = counts(name, result)
    return [Text(first, style=colour), *others]


def _show_repeats(console: Console, name: str, summed: Mapping[str, Any]) -> None:
    console.print(f"{name}: repeated, temperature {repeats.TEMPERATURE}, 95% intervals")
    *cases, overall = repeats.rows(summed)
    show_table(
        console, repeats.HEADINGS, [*cases[:MAX_LISTED], overall], numbers=repeats.HEADINGS[:1], whole=True
    )
    if len(cases) > MAX_LISTED:
        console.print(
            f"... and {len(cases) - MAX_LISTED} more cases that did not always pass, in results.json"
        )


def _about_servers(results: Mapping[str, TargetResult]) -> list[str]:
    environments = dict.fromkeys(result.environment for result in results.values())
    lines = [f"server environment: {environment}" for environment in environments]
    if lacking := sorted({API_PATHS[name] for result in results.values() for name in result.lacking}):
        lines.append(f"not served, so not tested: {', '.join(lacking)}")
    if restarts := [f"{name} {result.restarts}" for name, result in results.items() if result.restarts]:
        lines.append(f"servers that died and were started again: {', '.join(restarts)}")
    return lines


def _about_tests(results: Mapping[str, TargetResult], known_defects: Defects) -> list[str]:
    lines = []
    if retries := [f"{name} {n}" for name, result in results.items() if (n := result.counts()["retries"])]:
        lines.append(f"retries: {', '.join(retries)}")
    for name, result in results.items():
        if summed := quality.summary(result.tally, result.reference):
            lines.append(f"{name}: {quality.line(summed)}")
    defects = {reference for result in results.values() for reference in result.defects}
    tests = sum(len(shown_by) for result in results.values() for shown_by in result.defects.values())
    if defects:
        lines.append(f"{_seen(len(defects), 'known defect', 'vLLM')}, in {_number(tests, 'test')}")
    known = {reference for result in results.values() for reference in result.known}
    whose = Counter(_product(reference, known_defects) for reference in known)
    lines += [_seen(count, "known deviation", product) for product, count in sorted(whose.items())]
    skips = sum((result.skips for result in results.values()), Counter[str]())
    if skips:
        lines.append(f"skipped: {_first([f'{code} {count}' for code, count in skips.most_common()])}")
    return lines


def _failures(results: Mapping[str, TargetResult], width: int, listed: bool) -> list[str]:
    tests = [f"{test}: {why}" for result in results.values() for test, why in result.failures.items()]
    gone = [f"{name}: {message}" for name, result in results.items() for message in result.gone]
    failures = [*gone, *([] if listed and len(tests) <= MAX_LISTED else tests)]
    if not failures:
        return []
    lines = [f"{_number(len(gone) + len(tests), 'failure')}:"]
    lines += ["  " + one_line(failure, width - 2) for failure in failures[:MAX_LISTED]]
    return [*lines, f"  ... and {len(failures) - MAX_LISTED} more"] if len(failures) > MAX_LISTED else lines


def _product(reference: str, defects: Defects) -> str:
    defect = defects.get(reference)
    return (defect and defect.product) or "vLLM"


def _seen(count: int, what: str, of: str) -> str:
    return f"{_number(count, what)} of {of} {'was' if count == 1 else 'were'} seen"


def _first(reasons: Sequence[str]) -> str:
    more = f", and {len(reasons) - MAX_LISTED} more reasons" if len(reasons) > MAX_LISTED else ""
    return ", ".join(reasons[:MAX_LISTED]) + more


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
