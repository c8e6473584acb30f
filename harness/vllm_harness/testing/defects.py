"""Known defects: tests that state what is right and fail for a reason that has been analysed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from vllm_harness.errors import UsageError

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
    """A defect that a test is known to show.

    Attributes:
        reference: upstream issue (`vllm#12345`), or `unreported (short words)`.
        versions: vLLM versions that have it.
        models: entries that show it; empty for all.
        why: one line.
        raises: what the test fails with.
    """

    reference: str
    versions: SpecifierSet
    models: Collection[str]
    why: str
    raises: tuple[type[BaseException], ...]

    @classmethod
    def of(
        cls,
        reference: str,
        *,
        versions: str,
        why: str,
        models: Iterable[str] = (),
        raises: type[BaseException] | tuple[type[BaseException], ...] = SHOWN_BY,
    ) -> KnownDefect:
        """The defect of a mark's arguments. Raises UsageError where `versions` is no specifier."""
        try:
            specifier = SpecifierSet(versions)
        except InvalidSpecifier as error:
            raise UsageError(
                f"known_defect({reference!r}): {versions!r} is no version specifier",
                hint="write it as in PEP 440: >=0.22,<0.33",
            ) from error
        return cls(
            reference, specifier, tuple(models), why, raises if isinstance(raises, tuple) else (raises,)
        )

    def holds_for(self, version: str, model: str) -> bool:
        """Whether a server of this version and entry is to show it."""
        return (not self.models or model in self.models) and self.versions.contains(
            Version(version), prereleases=True
        )

    def __str__(self) -> str:
        return f"{self.reference}: {self.why}"


class DefectShown(AssertionError):
    """A test recognised a defect that shows by chance, as where it depends on how tokens fall into deltas.

    Args:
        defect: which; it must hold for the server's version and entry.
    """

    def __init__(self, defect: KnownDefect) -> None:
        super().__init__(str(defect))
        self.defect = defect


def defect_of(item: pytest.Item, version: str, model: str) -> KnownDefect | None:
    """The known defect that a test is to show on a server of this version and entry."""
    return next((defect for defect in marked(item) if defect.holds_for(version, model)), None)


def marked(item: pytest.Item) -> list[KnownDefect]:
    """All that a test is marked with. Raises UsageError where a mark is wrong."""
    return [_read(mark.args, mark.kwargs) for mark in item.iter_markers("vllm_known_defect")]


def _read(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> KnownDefect:
    try:
        return KnownDefect.of(*args, **kwargs)
    except TypeError as error:
        raise UsageError(f"@pytest.mark.vllm_known_defect: {error}") from error


def judge(report: pytest.TestReport, raised: BaseException | None, defect: KnownDefect) -> None:
    """Turns the failure that a defect explains into an expected one, and a pass into a failure."""
    if report.passed:
        report.outcome = "failed"
        report.longrepr = f"known defect {defect} does not show any more; fixed: remove the mark"
    elif report.failed and isinstance(raised, defect.raises):
        expect(report, defect)


def expect(report: pytest.TestReport, defect: KnownDefect) -> None:
    """Turns a failure into the expected one of a defect."""
    report.outcome = "skipped"
    report.wasxfail = str(defect)
