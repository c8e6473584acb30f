"""The outcomes of tests (known defects, skips, expected failures and misses), and their counts."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_harness._defects.entry import Defect
from vllm_harness._errors import UsageError
from vllm_harness._testing.content import UnexpectedContent, expect_content
from vllm_harness._testing.defects import DefectShown, defects_of
from vllm_harness._testing.recorder import TARGET_OF, TRIAL_OF, ReportRecorder, settle
from vllm_harness._testing.results import MISSED, TargetResult
from vllm_harness._testing.skips import code_of, coded, objection, skip

DEFECT = Defect(
    id="vllm-12345",
    title="It is wrong",
    kind="defect",
    versions=">=0.22,<0.33",
    models=("qwen3",),
    pattern="AssertionError: wrong|Timeout",
)


def report(outcome: Any, longrepr: Any = None, when: Any = "call") -> pytest.TestReport:
    """A report about a test, as pytest would create it."""
    return pytest.TestReport("tests/t.py::test_t", ("tests/t.py", 1, "test_t"), {}, outcome, longrepr, when)


def skipped(reason: str, when: str = "call") -> pytest.TestReport:
    """The report of a skipped test."""
    return report("skipped", ("tests/t.py", 3, f"Skipped: {reason}"), when)


def settled(given: pytest.TestReport, raised: BaseException | None = None, **more: Any) -> pytest.TestReport:
    """Settles a report's outcome and returns it; by default no defects, skips or repeats are expected."""
    defects = {DEFECT.id: DEFECT}
    settle(
        given, raised, **{"known": (), "defects": defects, "expected_skips": (), "repeated": False, **more}
    )
    return given


class Marked:
    """A fake test with one mark, which has the attributes that `defects_of` uses."""

    nodeid = "tests/t.py::test_t"

    def __init__(self, *args: str, **options: Any) -> None:
        self.mark = pytest.mark.vllm_known_defect(*args, **options).mark

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        """A list of the mark, if it has this name."""
        return [self.mark] if self.mark.name == name else []


@pytest.mark.parametrize(
    ("models", "version", "model", "shows"),
    [
        ((), "0.32.0", "gpt-oss", True),
        (["qwen3"], "0.32.0", "gpt-oss", False),
        (["qwen3"], "0.32.0", "qwen3", True),
        (["qwen3"], "0.33.0", "qwen3", False),
    ],
)
def test_a_mark_can_narrow_the_models(models: list[str], version: str, model: str, shows: bool) -> None:
    test: Any = Marked(DEFECT.id, models=models)
    broad = DEFECT.model_copy(update={"models": ()})
    assert defects_of(test, version, model, {DEFECT.id: broad}) == [broad] * shows


@pytest.mark.parametrize("test", [Marked(), Marked("vllm-1"), Marked(DEFECT.id, model="qwen3")])
def test_a_wrong_mark_is_an_error_that_names_the_test(test: Any) -> None:
    with pytest.raises(UsageError, match=r"tests/t.py::test_t: .*"):
        defects_of(test, "0.32.0", "qwen3", {DEFECT.id: DEFECT})


def test_a_known_defect_is_expected_to_fail() -> None:
    given = settled(report("failed", "wrong"), AssertionError("wrong"), known=[DEFECT])
    assert given.skipped
    assert given.wasxfail == "vllm-12345: It is wrong"


def test_a_known_defect_that_is_gone_fails() -> None:
    given = settled(report("passed"), known=[DEFECT])
    assert given.failed
    assert "fixed: bound the versions" in str(given.longrepr)


@pytest.mark.parametrize("error", [NameError("x"), KeyError("x"), ImportError("x")])
def test_a_mistake_in_a_test_is_not_a_known_defect(error: Exception) -> None:
    assert settled(report("failed", "wrong"), error, known=[DEFECT]).failed


def test_a_failure_that_does_not_match_the_pattern_counts() -> None:
    assert settled(report("failed", "x"), AssertionError("wrong"), known=[DEFECT]).skipped
    given = settled(report("failed", "x"), AssertionError("no script matches"), known=[DEFECT])
    assert given.failed
    assert any("vllm-12345" in text for _, text in given.sections)


def test_one_of_several_defects_can_show() -> None:
    other = DEFECT.model_copy(update={"id": "vllm-2", "pattern": "KeyError: 'x'"})
    given = settled(report("failed", "x"), KeyError("x"), known=[DEFECT, other])
    assert given.wasxfail == "vllm-2: It is wrong"


@pytest.mark.parametrize("when", ["setup", "teardown"])
def test_only_the_test_itself_can_show_a_defect(when: str) -> None:
    assert settled(report("failed", "x", when), AssertionError("wrong"), known=[DEFECT]).failed


def test_a_defect_that_shows_by_chance_is_expected() -> None:
    given = settled(report("failed", "x"), DefectShown(DEFECT.id))
    assert given.skipped
    assert given.wasxfail == "vllm-12345: It is wrong"


def test_the_xfail_of_pytest_is_rejected() -> None:
    given = report("skipped", "reason")
    given.wasxfail = "some day"
    assert settled(given).failed
    assert not hasattr(given, "wasxfail")
    assert "without a reference" in str(given.longrepr)


def test_a_skip_needs_an_expected_code() -> None:
    assert settled(skipped("[image-cpu] no eyes"), expected_skips={"image-cpu"}).skipped
    unexpected = settled(skipped("[image-cpu] no eyes"))
    assert unexpected.failed
    assert "does not expect" in str(unexpected.longrepr)
    assert "without a reason code" in str(settled(skipped("because"), expected_skips={"because"}).longrepr)


def test_skip_raises_code_and_reason() -> None:
    with pytest.raises(pytest.skip.Exception, match=r"\[image-cpu\] no eyes") as caught:
        skip("image-cpu", "no eyes")
    assert code_of(str(caught.value)) == "image-cpu"
    with pytest.raises(ValueError, match="not a reason code"):
        skip("Image CPU", "no eyes")


def test_an_objection_depends_on_the_code_alone() -> None:
    assert objection(coded("slow", "run with --vllm-slow"), {"slow"}) is None
    assert objection("[] nothing", {""}) is not None


def test_unexpected_content_in_a_repeated_test_is_a_miss() -> None:
    error = UnexpectedContent("Paris")
    assert settled(report("failed", "x"), error).failed
    assert settled(report("failed", "x"), error, repeated=True).outcome == MISSED
    assert settled(report("failed", "x"), AssertionError(), repeated=True).failed


def test_expect_content_raises_what_allows_a_retry() -> None:
    expect_content("Paris" in "Paris.", "Paris")
    with pytest.raises(UnexpectedContent, match="Paris, not 'Rome'"):
        expect_content(False, "Paris, not 'Rome'")


def counted(*reports: pytest.TestReport, trial: tuple[str, int] | None = None) -> TargetResult:
    """The result that a recorder counts from reports."""
    result = TargetResult()
    recorder = ReportRecorder(lambda target: result)
    for given in reports:
        setattr(given, TARGET_OF, "scripted-qwen3")
        setattr(given, TRIAL_OF, trial)
        recorder.pytest_runtest_logreport(given)
    return result


def test_outcomes_are_counted() -> None:
    defect = settled(report("failed", "x"), AssertionError("wrong"), known=[DEFECT])
    result = counted(
        report("passed", when="setup"),
        report("passed"),
        report("passed", when="teardown"),
        report("failed", "x"),
        report("failed", "x", "teardown"),
        report("rerun", "x"),
        skipped("[slow] x", "setup"),
        defect,
    )
    assert result.counts() == {"passed": 1, "failed": 2, "skipped": 1, "known": 1, "retries": 1}
    assert result.tests == {"tests/t.py::test_t": "xfailed"}
    assert result.skips == {"slow": 1}
    assert result.skipped == {"[slow] x": ["tests/t.py::test_t"]}
    assert result.failures == {"tests/t.py::test_t": "x"}
    assert result.defects == {"vllm-12345": {"tests/t.py::test_t": "AssertionError: wrong"}}


def test_other_tests_are_not_counted() -> None:
    result = TargetResult()
    ReportRecorder(lambda target: result).pytest_runtest_logreport(report("passed"))
    assert not result.outcomes


def test_trials_count_every_kind_of_failure() -> None:
    def outcome(*reports: pytest.TestReport) -> dict[str, dict[int, bool]]:
        return counted(*reports, trial=("case", 3)).trials

    missed = settled(report("failed", "x"), UnexpectedContent(), repeated=True)
    assert outcome(report("passed")) == {"case": {3: True}}
    assert outcome(report("failed", "x", "setup")) == {"case": {3: False}}
    assert outcome(report("passed"), report("failed", "x", "teardown")) == {"case": {3: False}}
    assert outcome(missed) == {"case": {3: False}}
    assert outcome(skipped("[slow] x", "setup")) == {}
