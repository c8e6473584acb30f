"""The data of the page: an index of all cases, which is read first, and the details of each case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from vllm_harness._defects.entry import Defect
from vllm_harness._runs.reading import RecordOffset, header_of, latest_cases, records
from vllm_harness._runs.records import (
    CaseRecord,
    End,
    ExchangeRecord,
    Header,
    LogLines,
    Outcome,
    Series,
    TargetRecord,
)
from vllm_harness.extras.html.bounds import Allowance
from vllm_harness.extras.html.exchanges import shown, with_twins
from vllm_harness.extras.html.packing import Blocks

StoredRecord = TypeVar("StoredRecord", ExchangeRecord, LogLines)

OUTCOMES = list(Outcome)
SUMMARY = 300  # characters
LINES = 2_000  # lines of a log, for each case
_LEAST_URGENT = (Outcome.SKIPPED, Outcome.PASSED)
_TOO_LARGE = "The exchanges are left out, since the page would become too large; the run folder has them."


@dataclass
class RunContents:
    """The contents of a run folder; exchanges and logs stay on disk."""

    header: Header
    targets: dict[str, TargetRecord] = field(default_factory=dict)
    cases: list[CaseRecord] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    end: End | None = None
    exchanges: dict[tuple[str, str], list[RecordOffset]] = field(default_factory=dict)
    logs: dict[tuple[str, str], list[RecordOffset]] = field(default_factory=dict)


def read_run(folder: Path) -> RunContents:
    """Reads a run folder. Raises UsageError if the folder is not a run folder."""
    run = RunContents(header_of(folder))
    for place, record in records(folder):
        match record:
            case TargetRecord():
                run.targets[record.id] = record
            case CaseRecord():
                run.cases.append(record)
            case ExchangeRecord():
                run.exchanges.setdefault((record.target, record.case), []).append(place)
            case LogLines():
                run.logs.setdefault((record.target, record.case), []).append(place)
            case Series():
                run.series.append(record)
            case End():
                run.end = record
    run.cases = latest_cases(run.cases)
    for case in run.cases:
        run.targets.setdefault(case.target, TargetRecord(id=case.target, title=case.target))
    return run


def index_of(run: RunContents, blocks: Blocks, partners: Mapping[str, str]) -> dict[str, Any]:
    """Makes the index of a run, with the places of its cases' details in the blocks.

    Args:
        run: the contents of the run folder.
        blocks: stores the details.
        partners: for the id of each of the run's targets, the id of the target that it is compared with.

    Returns:
        `header`, `end`, `targets` (each with its `partner`), `groups`, `series`, and `cases` as rows: id,
        index of the target, index of the group, title, index of the outcome, defects, summary, seconds,
        attempts, codes, covers, and the place of the details.
    """
    targets = list(run.targets.values())
    groups = list(dict.fromkeys(case.group for case in run.cases))
    target_index = {target.id: at for at, target in enumerate(targets)}
    group_index = {group: at for at, group in enumerate(groups)}
    places = _add_details(run, blocks)
    return {
        "header": run.header.model_dump(mode="json"),
        "end": run.end and run.end.model_dump(mode="json"),
        "targets": [
            target.model_dump(mode="json", exclude_defaults=True) | {"partner": partners.get(target.id, "")}
            for target in targets
        ],
        "groups": groups,
        "series": [series.model_dump(mode="json", exclude_defaults=True) for series in run.series],
        "cases": [
            [
                case.id,
                target_index[case.target],
                group_index[case.group],
                case.title,
                OUTCOMES.index(case.outcome),
                case.defects,
                _summary(case),
                None if case.seconds is None else round(case.seconds, 4),
                case.attempts,
                sorted({finding.code for finding in case.findings if finding.code}),
                case.covers,
                place,
            ]
            for case, place in zip(run.cases, places, strict=True)
        ],
    }


def defect_of(defect: Defect) -> dict[str, Any]:
    """The data of a defect for the page."""
    upstream = defect.upstream
    repository, _, number = (upstream.reference or "").partition("#")
    return {
        "title": defect.title,
        "class": defect.kind,
        "severity": defect.severity or "",
        "component": defect.component,
        "apis": defect.apis,
        "versions": defect.versions,
        "reference": upstream.reference or "",
        "state": upstream.state or "",
        "url": f"https://github.com/vllm-project/vllm/issues/{number}"
        if repository == "vllm" and number.isdigit()
        else "",
        "searched": upstream.searched,
        "expected": defect.expected.text if defect.expected else "",
        "source": defect.expected.source if defect.expected else "",
        "actual": defect.actual,
        "evidence": defect.evidence,
        "repro": defect.repro is not None or bool(defect.failures),
    }


def _summary(case: CaseRecord) -> str:
    findings = (f"{finding.code} {finding.message}".strip() for finding in case.findings if not finding.known)
    texts = (case.reason, *findings)
    text = " ".join(next(filter(None, texts), "").split())
    return text if len(text) <= SUMMARY else f"{text[:SUMMARY]}…"


def _add_details(run: RunContents, blocks: Blocks) -> list[tuple[int, int] | None]:
    """Adds the details of all cases to the blocks, failures first; returns their places in the blocks."""
    places: list[tuple[int, int] | None] = [None] * len(run.cases)
    for at in sorted(range(len(run.cases)), key=lambda at: _urgency(run.cases[at])):
        detail = _detail(run, run.cases[at], full=blocks.full)
        if detail:
            places[at] = blocks.add(detail)
    blocks.close()
    return places


def _urgency(case: CaseRecord) -> int:
    if case.outcome is Outcome.FINDING:
        return 0
    return 2 + _LEAST_URGENT.index(case.outcome) if case.outcome in _LEAST_URGENT else 1


def _detail(run: RunContents, case: CaseRecord, *, full: bool) -> dict[str, Any]:
    allowance = Allowance()
    fields: dict[str, Any] = {
        "details": allowance.text(case.details),
        "reason": allowance.text(case.reason) if len(case.reason) > SUMMARY else "",
        "findings": [
            allowance.value(finding.model_dump(mode="json", exclude_defaults=True))
            for finding in case.findings
        ],
        "started": case.started,
        "node": case.node,
    }
    key = (case.target, case.id)
    if not full:
        fields["logs"] = [_log(each, allowance) for each in _read(run.logs.get(key, ()), LogLines)]
        fields["exchanges"] = _exchanges(run, case, allowance)
    elif key in run.exchanges or key in run.logs:
        fields["left_out"] = _TOO_LARGE
    return {name: value for name, value in fields.items() if value}


def _exchanges(run: RunContents, case: CaseRecord, allowance: Allowance) -> list[dict[str, Any]]:
    """The exchanges of a case in order; those with a finding use the allowance first."""
    exchanges = with_twins(list(_read(run.exchanges.get((case.target, case.id), ()), ExchangeRecord)))
    with_findings = {finding.exchange for finding in case.findings}
    order = sorted(range(len(exchanges)), key=lambda at: exchanges[at].id not in with_findings)
    fields = {at: shown(exchanges[at], allowance) for at in order}
    return [fields[at] for at in range(len(exchanges))]


def _log(log: LogLines, allowance: Allowance) -> dict[str, Any]:
    lines = [allowance.text(line) for line in log.lines[-LINES:]]
    left_out = len(log.lines) - len(lines)
    return {
        "source": log.source,
        "lines": ([f"… [{left_out:,} earlier lines are left out]"] if left_out else []) + lines,
    }


def _read(places: Iterable[RecordOffset], kind: type[StoredRecord]) -> Iterator[StoredRecord]:
    return (record for place in places if isinstance(record := place.read(), kind))
