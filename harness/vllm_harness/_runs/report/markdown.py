"""Reports a run as Markdown, for the summary page of a CI job: counts, findings, known defects, skips."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from vllm_harness._runs.records import CaseRecord, Outcome
from vllm_harness._runs.report.run import RecordedRun, counts, duration_s
from vllm_harness._terminal.markdown import code_span

LISTED = 50
"""The maximum number of lines in a list; a job's summary page is limited to 1 MiB."""
_WIDTH = 300
_HEADINGS = {
    Outcome.PASSED: "passed",
    Outcome.KNOWN: "known",
    Outcome.FINDING: "findings",
    Outcome.SKIPPED: "skipped",
    Outcome.CANCELLED: "cancelled",
    Outcome.NOT_JUDGED: "not judged",
}


def markdown(run: RecordedRun, titles: Mapping[str, str]) -> str:
    """Makes the summary of a run.

    Args:
        run: the run.
        titles: known defect id -> title.
    """
    return (
        "\n".join([*_head(run), *_table(run), *_findings(run), *_defects(run, titles), *_skips(run)]) + "\n"
    )


def _head(run: RecordedRun) -> Iterator[str]:
    header = run.header
    yield f"# vLLM harness: {header.kind}{f' {code_span(header.name)}' if header.name else ''}"
    yield ""
    started = datetime.fromtimestamp(header.started, UTC).strftime("%Y-%m-%d %H:%M UTC")
    yield f"{started}, {duration_s(run):.0f} s, cases: {len(run.cases)}, targets: {len(run.targets)}"
    if run.end is None:
        yield "\n**The run has no end**: it was killed, or it is still running."
    elif run.end.stopped:
        yield f"\n**It was stopped**: {code_span(run.end.stopped, _WIDTH)}"


def _table(run: RecordedRun) -> Iterator[str]:
    of_target = {
        target: counts(case for case in run.cases if case.target == target) for target in run.targets
    }
    shown = [
        outcome
        for outcome in _HEADINGS
        if outcome in (Outcome.PASSED, Outcome.FINDING)
        or any(number[outcome] for number in of_target.values())
    ]
    yield ""
    yield f"| target | vLLM | {' | '.join(_HEADINGS[outcome] for outcome in shown)} |"
    yield f"| --- | --- |{' ---: |' * len(shown)}"
    for name, number in of_target.items():
        target = run.targets[name]
        version = f"{target.vllm} {target.frontend}".strip()
        cells = [_cell(name), _cell(version), *(str(number[outcome]) for outcome in shown)]
        yield f"| {' | '.join(cells)} |"


def _findings(run: RecordedRun) -> Iterator[str]:
    failed = run.of(Outcome.FINDING)
    yield from _list(f"Findings ({len(failed)})", [_case_line(run, case) for case in failed])


def _defects(run: RecordedRun, titles: Mapping[str, str]) -> Iterator[str]:
    shown = Counter(defect for case in run.cases for defect in case.defects)
    lines = [
        f"- {code_span(defect)}{_titled(titles.get(defect, ''))}, cases: {number}"
        for defect, number in sorted(shown.items())
    ]
    yield from _list(f"Known defects ({len(shown)})", lines)


def _skips(run: RecordedRun) -> Iterator[str]:
    for outcome, title in ((Outcome.SKIPPED, "Skipped"), (Outcome.NOT_JUDGED, "Not judged")):
        reasons = Counter(case.reason for case in run.of(outcome))
        lines = [f"- {code_span(reason, _WIDTH)}: {number}" for reason, number in sorted(reasons.items())]
        yield from _list(f"{title} ({sum(reasons.values())})", lines)


def _list(title: str, lines: Sequence[str]) -> Iterable[str]:
    if not lines:
        return []
    more = [f"- ... and {len(lines) - LISTED} more"] if len(lines) > LISTED else []
    return ["", f"## {title}", "", *lines[:LISTED], *more]


def _case_line(run: RecordedRun, case: CaseRecord) -> str:
    return f"- {code_span(case.id)} on {code_span(run.title(case.target))}: {code_span(case.reason, _WIDTH)}"


def _titled(title: str) -> str:
    return f" {code_span(title)}" if title else ""


def _cell(text: str) -> str:
    return code_span(text).replace("|", "\\|") if text else ""
