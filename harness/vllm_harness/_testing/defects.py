"""Known defects in tests: a test that states what is right, and fails as an entry of the registry says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import Defects, DefectsError, find
from vllm_harness._errors import UsageError
from vllm_harness._testing.wire import LIBRARIES

MARK = "vllm_known_defect"
DEFECT_OF = "vllm_harness_defect"  # of a report: id of the defect, and how the test failed
DEFECT_GONE = "vllm_harness_defect_gone"  # of a report: the test passed, and was to show a defect


@dataclass(frozen=True)
class KnownDefect:
    """A defect that a test is marked with.

    Attributes:
        defect: the entry.
        models: model entries on which the test shows it; none: those of the entry.
    """

    defect: Defect
    models: tuple[str, ...] = ()

    def holds_for(self, version: str, model: str) -> bool:
        """Whether the test is to show it on a server of this version and model entry."""
        return (not self.models or model in self.models) and self.defect.holds_for(version, model)


class DefectShown(AssertionError):
    """A test recognised a defect that shows by chance, as where it depends on how tokens fall into deltas.

    Args:
        defect_id: which; its entry must hold for the server's version and model entry.
    """

    def __init__(self, defect_id: str) -> None:
        super().__init__(f"known defect {defect_id}")
        self.defect_id = defect_id


def defects_of(item: pytest.Item, version: str, model: str, defects: Defects) -> list[Defect]:
    """The known defects of which a test is to show one on a server of this version and model entry."""
    return [each.defect for each in marked(item, defects) if each.holds_for(version, model)]


def marked(item: pytest.Item, defects: Defects) -> Iterator[KnownDefect]:
    """All that a test is marked with. Raises UsageError, naming the test, where a mark is wrong."""
    for mark in item.iter_markers(MARK):
        try:
            yield _read(mark.args, mark.kwargs, defects)
        except DefectsError as error:
            raise UsageError(f"{item.nodeid}: {error.message}", hint=error.hint) from error


def _read(args: tuple[Any, ...], settings: Mapping[str, Any], defects: Defects) -> KnownDefect:
    if len(args) != 1 or not isinstance(args[0], str) or set(settings) - {"models"}:
        raise DefectsError(
            f"@pytest.mark.{MARK} takes the id of a defect, and models",
            hint='write it as @pytest.mark.vllm_known_defect("vllm-46940", models=["qwen3"])',
        )
    return KnownDefect(find(args[0], defects), tuple(settings.get("models", ())))


def judge(report: pytest.TestReport, raised: BaseException | None, known: Sequence[Defect]) -> None:
    """Turns a failure that a defect of the test explains into an expected one, and a pass into a failure."""
    if report.passed:
        report.outcome = "failed"
        setattr(report, DEFECT_GONE, True)
        report.longrepr = "\n".join(
            f"known defect {defect.id} does not show any more ({defect.title}); "
            "fixed: bound the versions of its entry, or remove the mark"
            for defect in known
        )
    elif report.failed and raised is not None:
        if shown := next((defect for defect in known if is_shown(defect, raised)), None):
            expect(report, raised, shown)
        else:
            report.sections += [("another failure than the known defect's", _wanted(each)) for each in known]


def is_shown(defect: Defect, raised: BaseException) -> bool:
    """Whether a failure is the defect: as its pattern says; without a pattern, what a server can cause."""
    return defect.shown_by(raised) if defect.pattern else isinstance(raised, _shown_by())


def _shown_by() -> tuple[type[BaseException], ...]:
    """How a wrong server shows itself; a NameError, for example, is a wrong test."""
    from openai import OpenAIError

    timed_out = pytest.fail.Exception  # by a test's own limit
    of_httpx = (each for library in LIBRARIES for each in (library.HTTPError, library.StreamError))
    return AssertionError, OSError, *of_httpx, OpenAIError, timed_out


def _wanted(defect: Defect) -> str:
    return f"the test is to show {defect.id} ({defect.title}) by a failure that matches {defect.pattern}"


def expect(report: pytest.TestReport, raised: BaseException, defect: Defect) -> None:
    """Turns a failure into the expected one of a defect."""
    report.outcome = "skipped"
    report.wasxfail = f"{defect.id}: {defect.title}"
    setattr(report, DEFECT_OF, (defect.id, f"{type(raised).__name__}: {raised}"))
