"""How bad a defect is: what a client gets of what the model said."""

from __future__ import annotations

from typing import get_args

from vllm_harness.defects.entry import Defect, Severity
from vllm_harness.regression.results.explained import parser_defects
from vllm_harness.regression.results.mismatches import MismatchCode

SEVERITIES: tuple[Severity, ...] = get_args(Severity)
_OF_MISMATCH: dict[MismatchCode, Severity] = {
    MismatchCode.ARGUMENTS_DIFFER: "wrong data",
    MismatchCode.FUNCTION_DIFFERS: "wrong data",
    MismatchCode.CALL_EXTRA: "wrong data",
    MismatchCode.TEXT_DIFFERS: "wrong data",
    MismatchCode.REASONING_DIFFERS: "wrong data",
    MismatchCode.GRAMMAR_NOT_ENFORCED: "wrong data",
    MismatchCode.CALL_LOST: "lost data",
    MismatchCode.CALL_UNNAMED: "lost data",
    MismatchCode.TEXT_LOST: "lost data",
    MismatchCode.TEXT_CUT: "lost data",
    MismatchCode.REASONING_LOST: "lost data",
    MismatchCode.REASONING_CUT: "lost data",
    MismatchCode.WORDS_LOST: "lost data",
    MismatchCode.VALUES_LOST: "lost data",
    MismatchCode.ANSWER_EMPTY: "lost data",
    MismatchCode.ARGUMENTS_NOT_JSON: "broken output",
    MismatchCode.ARGUMENTS_NOT_OBJECT: "broken output",
    MismatchCode.TEXT_UNEXPECTED: "broken output",
    MismatchCode.REASONING_UNEXPECTED: "broken output",
    MismatchCode.CALL_FORBIDDEN: "broken output",
    MismatchCode.ERROR: "error",
    MismatchCode.PARSERS_NOT_MADE: "error",
    MismatchCode.TIME_SUPERLINEAR: "delay",
    MismatchCode.TIME_SUPERQUADRATIC: "delay",
    MismatchCode.MEMORY_SUPERLINEAR: "delay",
    MismatchCode.LOOP_BLOCKED: "delay",
}


def severity_of(defect: Defect) -> Severity:
    """What the entry says, else the worst of the mismatches by which it shows, else `contract`."""
    if defect.severity:
        return defect.severity
    shown = [
        _OF_MISMATCH.get(mismatch.code, "contract")
        for known in parser_defects({defect.id: defect})
        for selection in known.selections
        for mismatch in selection.mismatches
    ]
    return min(shown, key=SEVERITIES.index, default="contract")
