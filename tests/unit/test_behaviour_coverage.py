"""COVERAGE.md: unknown, stale and open ids are told."""

from __future__ import annotations

from typing import Any

import yaml

from tests.behaviour_coverage import GROUPS, LIST, behaviours, problems, render

LISTED: dict[str, Any] = {
    "VR-001": "an answer",
    "VR-002": {"title": "web search", "out": "there is none"},
    "CO-01": "a follow-up turn",
    "vllm-1": {"title": "the same, reported", "as": "VR-001"},
}


def test_rows() -> None:
    text = render(behaviours(LISTED, {"VR-001": {"b.py::test_b", "a.py::test_a"}}))
    assert "| VR-001 | an answer | `a.py::test_a`, `b.py::test_b` |" in text
    assert "| vllm-1 | the same, reported | `a.py::test_a`, `b.py::test_b` |" in text
    assert "| VR-002 | web search | out: there is none |" in text
    assert "| CO-01 | a follow-up turn | open |" in text
    assert "4 behaviours: 2 covered, 1 out, 1 open." in text


def test_problems() -> None:
    covered = {"VR-001": {"a"}, "VR-002": {"b"}, "VR-999": {"c"}}
    found = problems(behaviours(LISTED, covered), covered, complete=True)
    assert [problem.split(":")[0] for problem in found] == ["VR-999", "VR-002", "CO-01"]
    assert problems(behaviours(LISTED, {}), {}, complete=False) == []


def test_the_list_is_whole() -> None:
    listed = yaml.safe_load(LIST.read_text())
    number = {prefix: sum(name.startswith(f"{prefix}-") for name in listed) for prefix in GROUPS}
    assert number == {
        **{"VR": 75, "VM": 10, "VT": 16, "VC": 45, "VA": 24, "LS": 30},
        **{"GO": 9, "OR": 13, "AG": 6, "CO": 21, "vllm": 93},
    }
    assert sum(number.values()) == len(listed)
    assert all(each.title for each in behaviours(listed, {}).values())
