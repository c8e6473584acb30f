"""What the page holds of a run: an index of all cases, which is read at once, and the details of each."""

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

Kept = TypeVar("Kept", ExchangeRecord, LogLines)

OUTCOMES = list(Outcome)
SUMMARY = 300  # characters
LINES = 2_000  # of a log, for a case
_LAST = (Outcome.SKIPPED, Outcome.PASSED)
_TOO_LARGE = "Left out here, where the page would have become too large; the run folder has them."


@dataclass
class RunContents:
    """A run folder as it was read; exchanges and logs stay on the disk."""

    header: Header
    targets: dict[str, TargetRecord] = field(default_factory=dict)
    cases: list[CaseRecord] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    end: End | None = None
    exchanges: dict[tuple[str, str], list[RecordOffset]] = field(default_factory=dict)
    logs: dict[tuple[str, str], list[RecordOffset]] = field(default_factory=dict)


def read_run(folder: Path) -> RunContents:
    """Reads a run folder. Raises UsageError as `runs.reading.header_of` does."""
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
    """The index of a run, with the places of its cases' details.

    Args:
        run: as it was read.
        blocks: that take the details.
        partners: ids of the run's targets and of those that they are compared with.

    Returns:
        `header`, `end`, `targets` (each with its `partner`), `groups`, `series`, and `cases` as rows of id,
        number of target, of group, title, of outcome, defects, summary, seconds, attempts, codes, covers, and
        the place of the details.
    """
    targets = list(run.targets.values())
    groups = list(dict.fromkeys(case.group for case in run.cases))
    number = {target.id: place for place, target in enumerate(targets)}
    column = {group: place for place, group in enumerate(groups)}
    places = _keep_details(run, blocks)
    return {
        "header": run.header.model_dump(mode="json"),
        "end": run.end and run.end.model_dump(mode="json"),
        "targets": [
            target.model_dump(mode="json", exclude_defaults=True) | {"partner": partners.get(target.id, "")}
            for target in targets
        ],
        "groups": groups,
        "series": [each.model_dump(mode="json", exclude_defaults=True) for each in run.series],
        "cases": [
            [
                case.id,
                number[case.target],
                column[case.group],
                case.title,
                OUTCOMES.index(case.outcome),
                case.defects,
                _summary(case),
                None if case.seconds is None else round(case.seconds, 4),
                case.attempts,
                sorted({each.code for each in case.findings if each.code}),
                case.covers,
                place,
            ]
            for case, place in zip(run.cases, places, strict=True)
        ],
    }


def defect_of(defect: Defect) -> dict[str, Any]:
    """What the page tells of a defect."""
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
    found = (f"{each.code} {each.message}".strip() for each in case.findings if not each.known)
    texts = (case.reason, *found)
    text = " ".join(next(filter(None, texts), "").split())
    return text if len(text) <= SUMMARY else f"{text[:SUMMARY]}…"


def _keep_details(run: RunContents, blocks: Blocks) -> list[tuple[int, int] | None]:
    """Keeps the details of all cases, what failed first, as far as there is room."""
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
    return 2 + _LAST.index(case.outcome) if case.outcome in _LAST else 1


def _detail(run: RunContents, case: CaseRecord, *, full: bool) -> dict[str, Any]:
    room = Allowance()
    fields: dict[str, Any] = {
        "details": room.text(case.details),
        "reason": room.text(case.reason) if len(case.reason) > SUMMARY else "",
        "findings": [
            room.value(each.model_dump(mode="json", exclude_defaults=True)) for each in case.findings
        ],
        "started": case.started,
        "node": case.node,
    }
    key = (case.target, case.id)
    if not full:
        fields["logs"] = [_log(each, room) for each in _read(run.logs.get(key, ()), LogLines)]
        fields["exchanges"] = _exchanges(run, case, room)
    elif key in run.exchanges or key in run.logs:
        fields["left_out"] = _TOO_LARGE
    return {name: value for name, value in fields.items() if value}


def _exchanges(run: RunContents, case: CaseRecord, room: Allowance) -> list[dict[str, Any]]:
    """A case's exchanges in their order; those with a finding have the first right to the room."""
    exchanges = with_twins(list(_read(run.exchanges.get((case.target, case.id), ()), ExchangeRecord)))
    found = {each.exchange for each in case.findings}
    order = sorted(range(len(exchanges)), key=lambda at: exchanges[at].id not in found)
    made = {at: shown(exchanges[at], room) for at in order}
    return [made[at] for at in range(len(exchanges))]


def _log(log: LogLines, room: Allowance) -> dict[str, Any]:
    lines = [room.text(line) for line in log.lines[-LINES:]]
    left_out = len(log.lines) - len(lines)
    return {
        "source": log.source,
        "lines": ([f"… [{left_out:,} lines before these are left out]"] if left_out else []) + lines,
    }


def _read(places: Iterable[RecordOffset], kind: type[Kept]) -> Iterator[Kept]:
    return (record for place in places if isinstance(record := place.read(), kind))
