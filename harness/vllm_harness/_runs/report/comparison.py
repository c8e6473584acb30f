"""A comparison of two runs as text, Markdown and JSON."""

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
    """The number of cases by what became of them, in a line."""
    number = Counter(each.change for each in compared)
    return ", ".join(f"{number[change]} {change}" for change in OutcomeChange if number[change]) or "no case"


def as_text(before: RecordedRun, after: RecordedRun, compared: Sequence[ComparedCase]) -> str:
    """The cases that changed, a line each, below the counts."""
    return "\n".join([*_sides(before, after), headline(compared), *_changed(after, compared)]) + "\n"


def _changed(after: RecordedRun, compared: Sequence[ComparedCase]) -> Iterator[str]:
    for each in _listed(compared):
        case = each.case
        yield f"{each.change}: {one_line(case.target)} {one_line(case.id)}: {told(each)}"


def as_markdown(before: RecordedRun, after: RecordedRun, compared: Sequence[ComparedCase]) -> str:
    """The same for the page of a CI job; long lists are cut."""
    parts = ["# Two runs compared", "", *(f"- {line}" for line in _sides(before, after))]
    parts += ["", headline(compared)]
    for change in LISTED_CHANGES:
        found = [each for each in compared if each.change is change]
        if found:
            parts += ["", f"## {change.capitalize()} ({len(found)})", ""]
            parts += [
                f"- {code_span(each.case.id)} on {code_span(each.case.target)}: {code_span(told(each), 300)}"
                for each in found[:LISTED]
            ]
            parts += [f"- ... and {len(found) - LISTED} more"] if len(found) > LISTED else []
    return "\n".join(parts) + "\n"


def as_json(before: RecordedRun, after: RecordedRun, compared: Sequence[ComparedCase]) -> str:
    """All that changed, as data."""
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


def told(compared: ComparedCase) -> str:
    """What a case was and is, in a line."""
    before, after = compared.before, compared.after
    return f"{_state(before)} -> {_state(after)}" if before else _state(after)


def _state(case: CaseRecord | None) -> str:
    if case is None:
        return "not there"
    named = ", ".join(case.defects) if case.outcome is Outcome.KNOWN else one_line(case.reason, 200)
    return f"{case.outcome}{f' ({named})' if named else ''}"


def _side(case: CaseRecord | None) -> dict[str, Any] | None:
    return None if case is None else case.model_dump(include={"outcome", "defects", "reason"}, mode="json")


def _listed(compared: Sequence[ComparedCase]) -> list[ComparedCase]:
    return [each for change in LISTED_CHANGES for each in compared if each.change is change]


def _sides(before: RecordedRun, after: RecordedRun) -> Iterator[str]:
    for name, run in (("before", before), ("after", after)):
        versions = sorted({target.vllm for target in run.targets.values() if target.vllm})
        yield f"{name}: {run.folder} (vLLM {', '.join(versions) or 'unknown'})"
