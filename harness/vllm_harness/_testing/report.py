"""Writes the report of a run as Markdown: failures, known defects, skips and known deviations by test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from vllm_harness._defects.registry import Defects
from vllm_harness._terminal.markdown import code_span
from vllm_harness._terminal.tables import one_line
from vllm_harness._testing.results import TargetResult
from vllm_harness._testing.summary import HEADINGS, counts

REPORT = "report.md"


def write_report(results: Mapping[str, TargetResult], defects: Defects, path: Path) -> None:
    """Writes the report of a run.

    Args:
        results: the results, by target.
        defects: the known defects.
        path: the file.
    """
    path.write_text("\n".join(_lines(results, defects)) + "\n", errors="backslashreplace")


def _lines(results: Mapping[str, TargetResult], defects: Defects) -> Iterator[str]:
    yield "# vLLM servers"
    yield ""
    for environment in dict.fromkeys(result.environment for result in results.values()):
        yield f"Server environment: {environment}"
    yield ""
    yield f"| {' | '.join(HEADINGS)} |"
    yield f"|{' --- |' * len(HEADINGS)}"
    for name, result in results.items():
        yield f"| {' | '.join(counts(name, result))} |"
    yield from _failures(results)
    yield from _defects(results, defects)
    yield from _section("Skipped", _by_reason({name: result.skipped for name, result in results.items()}))
    yield from _deviations(results)


def _failures(results: Mapping[str, TargetResult]) -> Iterator[str]:
    failed = [(test, why) for result in results.values() for test, why in result.failures.items()]
    gone = [f"- {name}: {message}" for name, result in results.items() for message in result.gone]
    if failed or gone:
        yield from ("", f"## Failures ({len(failed) + len(gone)})", "", *gone)
    for test, why in failed:
        yield f"- {code_span(test)}: {code_span(why)}"


def _by_reason(of_targets: Mapping[str, Mapping[str, list[str]]]) -> dict[str, list[str]]:
    """Joins the tests of all targets: reason -> tests."""
    joined: dict[str, list[str]] = {}
    for reasons in of_targets.values():
        for reason, tests in reasons.items():
            joined.setdefault(reason, []).extend(tests)
    return dict(sorted(joined.items()))


def _section(title: str, reasons: Mapping[str, list[str]]) -> Iterator[str]:
    if not reasons:
        return
    tests = sum(map(len, reasons.values()))
    yield from ("", f"## {title} ({len(reasons)}, tests: {tests})")
    for reason, tests_of_reason in reasons.items():
        yield from ("", f"### {one_line(reason)}", "")
        yield from (f"- {code_span(test)}" for test in tests_of_reason)


def _defects(results: Mapping[str, TargetResult], defects: Defects) -> Iterator[str]:
    shown: dict[str, dict[str, str]] = {}
    for result in results.values():
        for defect, tests in result.defects.items():
            shown.setdefault(defect, {}).update(tests)
    if shown:
        yield from ("", f"## Known defects ({len(shown)}, tests: {sum(map(len, shown.values()))})")
    for defect, tests in sorted(shown.items()):
        yield from ("", f"### {defect}: {defects[defect].title}", "")
        yield from (f"- {code_span(test)}: {code_span(why)}" for test, why in tests.items())


def _deviations(results: Mapping[str, TargetResult]) -> Iterator[str]:
    if any(result.known for result in results.values()):
        yield from ("", "## Known deviations that were seen", "")
    for name, result in results.items():
        for reference in sorted(result.known):
            lines = [finding.text for finding in result.findings.values() if finding.known == reference]
            yield f"- {name}: {reference}"
            yield from (f"  - {code_span(line)}" for line in lines)
