"""The severity of a defect: how a client's answer differs from what the model generated."""

from __future__ import annotations

from typing import get_args

from vllm_harness._defects.entry import Defect, Severity
from vllm_harness._regression.results.mismatches import Mismatch, MismatchCode
from vllm_harness._regression.results.selections import selections_of

SEVERITIES: tuple[Severity, ...] = get_args(Severity)
_CODES: dict[Severity, str] = {
    "wrong data": "arguments_differ function_differs call_extra text_differs reasoning_differs "
    "grammar_not_enforced",
    "lost data": "call_lost call_unnamed text_lost text_cut reasoning_lost reasoning_cut words_lost "
    "values_lost answer_empty",
    "broken output": "arguments_not_json arguments_not_object text_unexpected reasoning_unexpected "
    "call_forbidden",
    "error": "error parsers_not_made",
    "delay": "time_superlinear time_superquadratic memory_superlinear loop_blocked",
}
_OF_MISMATCH = {MismatchCode(code): severity for severity, codes in _CODES.items() for code in codes.split()}


def severity_of_mismatch(code: MismatchCode) -> Severity:
    """The severity of a mismatch."""
    return _OF_MISMATCH.get(code, "contract")


def worst_first(mismatch: Mismatch) -> tuple[int, str]:
    """A key that sorts mismatches, the worst first."""
    return SEVERITIES.index(severity_of_mismatch(mismatch.code)), str(mismatch)


def severity_of(defect: Defect) -> Severity:
    """The severity stated in the entry, or that of its worst mismatch, or `contract` if it has none."""
    if defect.severity:
        return defect.severity
    shown = [
        severity_of_mismatch(mismatch.code)
        for selection in selections_of(defect)
        for mismatch in selection.mismatches
    ]
    return min(shown, key=SEVERITIES.index, default="contract")
