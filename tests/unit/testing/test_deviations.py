"""Known deviations that no longer occur, the runs that can show this, and the checks in tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.whole_run import gone, has_every_suite
from vllm_harness._protocol import Finding, KnownDeviation, Severity
from vllm_harness._testing.checks import BodyCheck, Checker, SameCheck
from vllm_harness._testing.content import UnexpectedContent
from vllm_harness.cli.run import SUITES

STORE = KnownDeviation(
    code="RO104", reference="vllm#1", versions=">=0.22,<0.33", note="no store", path="$.response.store"
)
ERROR = KnownDeviation(
    code="RO101", reference="vllm#1", versions="", note="no error", path="$.response.error"
)


def finding(code: str, path: str) -> Finding:
    """A finding with severity ERROR at a path."""
    return Finding(code, Severity.ERROR, 0, path, "wrong")


def test_a_deviation_that_did_not_occur_has_gone() -> None:
    messages = gone([STORE, ERROR], "0.32.0", [finding("RO101", "$.response.error")])
    assert len(messages) == 1
    assert "RO104 (vllm#1) no longer occurs on 0.32.0; fixed: remove it" in messages[0]


def test_a_deviation_that_occurred_or_does_not_hold_has_not_gone() -> None:
    seen = [finding("RO101", "$.response.error")]
    assert gone([STORE, ERROR], "0.33.0", seen) == []
    assert gone([STORE, ERROR], "0.32.0", [*seen, finding("RO104", "$.response.store")]) == []


@pytest.mark.parametrize(
    ("arguments", "start", "whole"),
    [
        (["tests"], "", True),
        (list(SUITES), "", True),
        ([""], "", True),
        ([*(suite.removeprefix("tests/") for suite in SUITES), "unit"], "tests", True),
        (list(SUITES[1:]), "", False),
        (["tests/behaviours/test_a.py", *SUITES[1:]], "", False),
        (["tests/behaviours::test_a", *SUITES[1:]], "", False),
    ],
)
def test_a_whole_run_has_every_suite(arguments: list[str], start: str, whole: bool, tmp_path: Path) -> None:
    for suite in SUITES:
        (tmp_path / suite).mkdir(parents=True)
    assert has_every_suite(tmp_path, arguments, (), tmp_path / start) is whole


@pytest.mark.parametrize(
    ("ignored", "whole"),
    [("tests/unit", True), ("tests/harmony", False), ("tests/harmony/test_a.py", False), ("tests", False)],
)
def test_ignoring_a_suite_narrows_a_run(ignored: str, whole: bool, tmp_path: Path) -> None:
    for suite in SUITES:
        (tmp_path / suite).mkdir(parents=True)
    assert has_every_suite(tmp_path, ["tests"], [ignored], tmp_path) is whole


def test_another_project_has_no_suites(tmp_path: Path) -> None:
    assert not has_every_suite(tmp_path, ["."], (), tmp_path)


def chunk(text: str) -> dict[str, object]:
    """A whole chat stream in one chunk."""
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


@pytest.mark.parametrize("exact", [True, False])
def test_a_different_body_is_unexpected_content_unless_scripted(exact: bool) -> None:
    message = {"role": "assistant", "content": "Rome"}
    body = {
        **{"id": "d", "object": "chat.completion", "created": 2, "model": "m"},
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    check_same = SameCheck(Checker([], "0.32.0", exact))
    check_same([chunk("Rome")], body)
    with pytest.raises(AssertionError) as caught:
        check_same([chunk("Paris")], body)
    assert isinstance(caught.value, UnexpectedContent) is not exact


def test_known_findings_do_not_fail() -> None:
    known = KnownDeviation(
        code="RO119", reference="vllm#2", versions="", note="no param", path="$.error.param"
    )
    error = {"error": {"message": "no", "type": "t", "code": 404}}
    with pytest.raises(AssertionError, match="RO119"):
        BodyCheck(Checker([], "0.32.0", True))(error)
    checker = Checker([known], "0.32.0", True)
    BodyCheck(checker)(error)
    assert [finding.known for finding in checker.findings] == ["vllm#2"]
