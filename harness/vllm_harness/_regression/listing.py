"""Lists families and test cases as JSON for other programs."""

from __future__ import annotations

from typing import Any

from vllm_harness._regression.cases.case import Case, CaseSet, Expected
from vllm_harness._scripted.dialects import find_dialect
from vllm_harness._scripted.families import Family
from vllm_harness._scripted.meaning import Meaning


def family_record(family: Family) -> dict[str, Any]:
    """Returns a family with its parsers, its dialect, and the source that documents the dialect's format."""
    return {
        "name": family.name,
        "tool_parser": family.tool_parser,
        "reasoning_parser": family.reasoning_parser,
        "dialect": family.dialect,
        "source": find_dialect(family.dialect).source,
        "model": family.model,
        "engines": ["in-process", "http"],
    }


def case_record(cases: CaseSet, case: Case) -> dict[str, Any]:
    """Returns a test case with its family, its input, and the expected answer."""
    place = {"family": cases.family.name, "group": cases.group, "topic": str(case.topic)}
    return {**place, **case.input.model_dump(mode="json"), "expected": _expected_record(case.expected)}


def _expected_record(expected: Expected) -> dict[str, Any]:
    return {
        "message": None if expected.meaning is None else _message(expected.meaning),
        "refused": expected.refused,
        "calls_allowed": expected.calls_allowed,
        "functions": sorted(expected.functions),
        "words": sorted(expected.words),
        "values": sorted(expected.values),
    }


def _message(meaning: Meaning) -> dict[str, Any]:
    return {
        "reasoning": meaning.reasoning,
        "content": meaning.text,
        "calls": [{"name": call.name, "arguments": call.arguments} for call in meaning.calls],
    }
