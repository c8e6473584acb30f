"""Known defects in tests: a test asserts the correct behaviour, and fails as a registry entry describes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pytest

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import Defects, DefectsError, find
from vllm_harness._errors import UsageError
from vllm_harness._testing.wire import LIBRARIES

MARK = "vllm_known_defect"
DEFECT_OF = "vllm_harness_defect"  # attribute of a report: the defect's id, and how the test failed
DEFECT_GONE = "vllm_harness_defect_gone"  # attribute of a report: the test passed, despite its mark


class DefectShown(AssertionError):
    """A test recognised a defect that shows only by chance, depending for example on how tokens are grouped.

    Args:
        defect_id: the id of the defect, whose entry must apply to the server's version and model entry.
    """

    def __init__(self, defect_id: str) -> None:
        super().__init__(f"known defect {defect_id}")
        self.defect_id = defect_id


def defects_of(item: pytest.Item, version: str, model: str, defects: Defects) -> list[Defect]:
    """The known defects of which a test should show one on a server of this version and model entry."""
    return [
        defect
        for defect, models in marked(item, defects)
        if (not models or model in models) and defect.holds_for(version, model)
    ]


def marked(item: pytest.Item, defects: Defects) -> Iterator[tuple[Defect, Collection[str]]]:
    """The defects that a test is marked with, each with the model entries that the mark names.

    Raises:
        UsageError: a mark is malformed or names an unknown defect; the message names the test.
    """
    for mark in item.iter_markers(MARK):
        if len(mark.args) != 1 or not isinstance(mark.args[0], str) or set(mark.kwargs) - {"models"}:
            raise UsageError(
                f"{item.nodeid}: @pytest.mark.{MARK} takes the id of a defect and, optionally, models",
                hint='write it as @pytest.mark.vllm_known_defect("vllm-46940", models=["qwen3"])',
            )
        try:
            yield find(mark.args[0], defects), mark.kwargs.get("models", ())
        except DefectsError as error:
            raise UsageError(f"{item.nodeid}: {error.message}", hint=error.hint) from error


def judge(report: pytest.TestReport, raised: BaseException | None, known: Sequence[Defect]) -> None:
    """Turns a failure that shows a known defect into an expected failure, and a pass into a failure."""
    if report.passed:
        report.outcome = "failed"
        setattr(report, DEFECT_GONE, True)
        report.longrepr = "\n".join(
            f"known defect {defect.id} no longer shows ({defect.title}); "
            "fixed: bound the versions of its entry, or remove the mark"
            for defect in known
        )
    elif report.failed and raised is not None:
        if shown := next((defect for defect in known if is_shown(defect, raised)), None):
            expect(report, raised, shown)
        else:
            report.sections += [("not the known defect's failure", _expected(defect)) for defect in known]


def is_shown(defect: Defect, raised: BaseException) -> bool:
    """Whether a failure matches the defect's pattern or, without one, whether a server can have caused it."""
    return defect.shown_by(raised) if defect.pattern else isinstance(raised, _errors_of_servers())


def _errors_of_servers() -> tuple[type[BaseException], ...]:
    """The errors that a faulty server can cause; a NameError, for example, is a mistake in the test."""
    from openai import OpenAIError

    timed_out = pytest.fail.Exception  # raised by the test's own timeout
    of_httpx = (error for library in LIBRARIES for error in (library.HTTPError, library.StreamError))
    return AssertionError, OSError, *of_httpx, OpenAIError, timed_out


def _expected(defect: Defect) -> str:
    return f"the test should show {defect.id} ({defect.title}) with a failure that matches {defect.pattern}"


def expect(report: pytest.TestReport, raised: BaseException, defect: Defect) -> None:
    """Turns a failure into the expected failure of a defect."""
    report.outcome = "skipped"
    report.wasxfail = f"{defect.id}: {defect.title}"
    setattr(report, DEFECT_OF, (defect.id, f"{type(raised).__name__}: {raised}"))
