"""Known defects in tests: a test that states what is right, and fails as an entry of the registry says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest

from vllm_harness.defects.entry import Defect
from vllm_harness.defects.registry import Defects, DefectsError, find
from vllm_harness.errors import UsageError

MARK = "vllm_known_defect"
DEFECT_OF = "vllm_harness_defect"  # of a report: id of the defect, and how the test failed
# how a wrong server shows itself; a NameError, for example, is a wrong test
SHOWN_BY: tuple[type[BaseException], ...] = (
    AssertionError,
    OSError,
    httpx.HTTPError,
    httpx.StreamError,
    openai.OpenAIError,
    pytest.fail.Exception,  # a test's own timeout
)


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


def defect_of(item: pytest.Item, version: str, model: str, defects: Defects) -> Defect | None:
    """The known defect that a test is to show on a server of this version and model entry."""
    known = marked(item, defects)
    return next((each.defect for each in known if each.holds_for(version, model)), None)


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


def judge(report: pytest.TestReport, raised: BaseException | None, defect: Defect) -> None:
    """Turns the failure that a defect explains into an expected one, and a pass into a failure."""
    if report.passed:
        report.outcome = "failed"
        report.longrepr = (
            f"known defect {defect.id} does not show any more ({defect.title}); "
            "fixed: bound the versions of its entry, or remove the mark"
        )
    elif report.failed and raised is not None and (defect.pattern or isinstance(raised, SHOWN_BY)):
        if defect.shown_by(raised):
            expect(report, raised, defect)
        else:
            note = (
                f"the test is to show {defect.id} ({defect.title}) by a failure that matches {defect.pattern}"
            )
            report.sections.append(("another failure than the known defect's", note))


def expect(report: pytest.TestReport, raised: BaseException, defect: Defect) -> None:
    """Turns a failure into the expected one of a defect."""
    report.outcome = "skipped"
    report.wasxfail = f"{defect.id}: {defect.title}"
    setattr(report, DEFECT_OF, (defect.id, f"{type(raised).__name__}: {raised}"))
