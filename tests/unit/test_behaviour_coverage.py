"""The generation of COVERAGE.md: its rows, and the report of unknown, stale and open ids."""

from __future__ import annotations

from typing import Any

import yaml

from tests.behaviour_coverage import GROUPS, LIST, SOURCES, Covering, behaviours, problems, render

LISTED: dict[str, Any] = {
    "VR-001": "an answer",
    "VR-002": {"title": "web search", "out": "there is none"},
    "CO-01": "a follow-up turn",
    "vllm-1": {"title": "the same, reported", "as": "VR-001"},
    "vllm-2": {"title": "a parser's", "regression": ["gemma4"]},
}


def passing(*tests: str) -> set[Covering]:
    """The coverage of a behaviour by tests that are expected to pass."""
    return {Covering(test) for test in tests}


def test_rows() -> None:
    text = render(behaviours(LISTED, {"VR-001": passing("b.py::test_b", "a.py::test_a")}))
    assert "| VR-001 | an answer | checked | `a.py::test_a`, `b.py::test_b` |" in text
    assert "| vllm-1 | the same, reported | checked | `a.py::test_a`, `b.py::test_b` |" in text
    assert "| VR-002 | web search | out | there is none |" in text
    assert "| CO-01 | a follow-up turn | open |" in text
    assert "| vllm-2 | a parser's | parser regression | gemma4 |" in text
    assert "5 behaviours: 2 checked, 1 parser regression, 1 out, 1 open." in text


def test_expected_failures_alone_check_nothing() -> None:
    failing = {Covering("a.py::test_a", ("vllm-1",)), Covering("b.py::test_b", ("vllm-2", "vllm-3"))}
    assert "| expected failure only: vllm-1, vllm-2, vllm-3 | `a.py::test_a`" in render(
        behaviours(LISTED, {"VR-001": failing})
    )
    one_passes = {*failing, Covering("a.py::test_a")}
    assert "| an answer | checked | `a.py::test_a`, `b.py" in render(
        behaviours(LISTED, {"VR-001": one_passes})
    )


def test_problems() -> None:
    covered = {"VR-001": passing("a"), "VR-002": passing("b"), "VR-999": passing("c")}
    found = problems(behaviours(LISTED, covered), covered, complete=True, sources=["VR-001", "VR-003"])
    assert [problem.split(":")[0] for problem in found] == ["VR-999", "VR-002", "VR-003", "CO-01"]
    assert problems(behaviours(LISTED, {}), {}, complete=False) == []
    unknown = {"vllm-3": {"title": "of no parser", "regression": ["gemma99"]}}
    assert problems(behaviours(unknown, {}), {}, complete=True) == ["vllm-3: there is no family 'gemma99'"]


def test_the_list_is_whole() -> None:
    listed = yaml.safe_load(LIST.read_text())
    assert {name.split("-")[0] for name in listed} == set(GROUPS)
    assert len(yaml.safe_load(SOURCES.read_text())) > 350
    assert all(each.title for each in behaviours(listed, {}).values())
