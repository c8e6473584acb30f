"""Reports a comparison of two runs as text, Markdown and JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from vllm_harness._runs.records import CaseRecord, Outcome
from vllm_harness._runs.report.compare import ComparedCase, OutcomeChange
from vllm_harness._runs.report.run import RecordedRun
from vllm_harness._terminal.markdown import code_span
from vllm_harness._terminal.tables import one_line

LISTED = 50
LISTED_CHANGES = (OutcomeChange.WORSE, OutcomeChange.OTHERWISE, OutcomeChange.BETTER, OutcomeChange.GONE)


def headline(compared: Sequence[ComparedCase]) -> str:
    """Counts the cases for each kind of change, in one line."""
    number = Counter(each.change for each in compared)
    return ", ".join(f"{number[change]} {change}" for change in OutcomeChange if number[change]) or "no case"


def as_text(before: RecordedRun, after: RecordedRun, compared: Sequence[ComparedCase]) -> str:
    """A text report: the counts, then the cases that changed, one per line."""
    return "\n".join([*_sides(before, after), headline(compared), *_changed(compared)]) + "\n"


def _changed(compared: Sequence[ComparedCase]) -> Iterator[str]:
    for each in _listed(compared):
        case = each.case
        yield f"{each.change}: {one_line(case.target)} {one_line(case.id)}: {change_of(each)}"


def as_markdown(before: RecordedRun, after: RecordedRun, compared: Sequence[ComparedCase]) -> str:
    """Makes the same report as Markdown, for the summary page of a CI job; long lists are truncated."""
    parts = ["# Two runs compared", "", *(f"- {line}" for line in _sides(before, after))]
    parts += ["", headline(compared)]
    for change in LISTED_CHANGES:
        cases = [each for each in compared if each.change is change]
        if cases:
            parts += ["", f"## {change.capitalize()} ({len(cases)})", ""]
            parts += map(_as_item, cases[:LISTED])
            parts += [f"- ... and {len(cases) - LISTED} more"] if len(cases) > LISTED else []
    return "\n".join(parts) + "\n"


def _as_item(compared: ComparedCase) -> str:
    case = compared.case
    return f"- {code_span(case.id)} on {code_span(case.target)}: {code_span(change_of(compared), 300)}"


def as_json(before: RecordedRun, after: RecordedRun, compared: Sequence[ComparedCase]) -> str:
    """Makes the same report as JSON."""
    changed = [
        {
            "change": str(each.change),
            "target": each.case.target,
            "case": each.case.id,
            "before": _side(each.before),
            "after": _side(each.after),
        }
        for each in _listed(compared)
    ]
    counted = Counter(str(each.change) for each in compared)
    value = {"before": str(before.folder), "after": str(after.folder), "counts": counted, "changed": changed}
    return json.dumps(value, indent=1) + "\n"


def change_of(compared: ComparedCase) -> str:
    """Shows the outcome of a case in both runs, in one line."""
    before, after = compared.before, compared.after
    return f"{_state(before)} -> {_state(after)}" if before else _state(after)


def _state(case: CaseRecord | None) -> str:
    if case is None:
        return "not there"
    why = ", ".join(case.defects) if case.outcome is Outcome.KNOWN else one_line(case.reason, 200)
    return f"{case.outcome}{f' ({why})' if why else ''}"


def _side(case: CaseRecord | None) -> dict[str, Any] | None:
    return None if case is None else case.model_dump(include={"outcome", "defects", "reason"}, mode="json")


def _listed(compared: Sequence[ComparedCase]) -> list[ComparedCase]:
    return [each for change in LISTED_CHANGES for each in compared if each.change is change]


def _sides(before: RecordedRun, after: RecordedRun) -> Iterator[str]:
    for name, run in (("before", before), ("after", after)):
        versions = sorted({target.vllm for target in run.targets.values() if target.vllm})
        yield f"{name}: {run.folder} (vLLM {', '.join(versions) or 'unknown'})"
