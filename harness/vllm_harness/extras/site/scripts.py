"""The report and script of each defect that can be shown with nothing but vLLM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from vllm_harness._defects.repro.parser_cases import ServedCase
from vllm_harness._defects.repro.reproducer import Reproducer, reproducer_of
from vllm_harness._defects.repro.verdict import Measured, Reproduction
from vllm_harness._exchange.delivery import like_in_process
from vllm_harness.extras.site.table import Compatibility
from vllm_harness.extras.triage.files import files_of
from vllm_harness.extras.triage.report import ReportFiles


@dataclass(frozen=True)
class ExportedDefect:
    """The files to download for a defect.

    Attributes:
        files: a report to file with the vLLM project, and a Python script that needs nothing but vLLM.
        shown_on: the vLLM version that showed the defect; empty if its entry lists requests for any version.
    """

    files: ReportFiles
    shown_on: str


def exported(table: Compatibility, verdicts: Iterable[Measured]) -> Iterator[tuple[str, ExportedDefect]]:
    """The id and files of each defect that can be shown with requests to one server.

    For a parser defect, a verdict or else a cell must contain a case and a delivery that showed it.

    Args:
        table: the compatibility table.
        verdicts: the verdicts measured on servers; the latest for a defect counts.
    """
    reproduced = _latest(verdicts)
    for defect in table.defects.values():
        reproducer = reproducer_of(defect)
        if reproducer and (shown := reproduced.get(defect.id) or _shown(table, reproducer)):
            vllm, outcome = shown
            yield (
                defect.id,
                ExportedDefect(files_of(reproducer, outcome, f"vLLM {vllm}" if vllm else "vLLM"), vllm),
            )


def _latest(verdicts: Iterable[Measured]) -> Mapping[str, tuple[str, Reproduction]]:
    latest: dict[str, tuple[str, Reproduction]] = {}
    for verdict in verdicts:
        if verdict.verdict == "reproduced":
            latest[verdict.id] = verdict.version, verdict.outcome
    return latest


def _shown(table: Compatibility, reproducer: Reproducer) -> tuple[str, Reproduction] | None:
    """The version and outcome for a defect without a verdict; the version is empty if the entry has steps."""
    if reproducer.defect.repro:
        return "", Reproduction("reproduced")
    return _in_cells(table, reproducer) if isinstance(reproducer, ServedCase) else None


def _in_cells(table: Compatibility, served: ServedCase) -> tuple[str, Reproduction] | None:
    """The newest version whose cell shows the case in a delivery that a server supports, and the outcome."""
    if served.group == "forced" or len(served.cases) > 1:
        return None  # the answer depends on what a version's grammar accepts, or on where chunks are split
    candidates = served.in_more_deliveries().deliveries
    for column in reversed(table.columns):
        measured = table.families.get(served.family.name, {}).get(column)
        shown = measured.shown.get(served.defect.id) if measured else None
        for failure in shown.failures if shown else ():
            if (failure.group, failure.case) != (served.group, served.name):
                continue
            for candidate in candidates:
                if failure.delivery in (candidate, like_in_process(candidate)):
                    outcome = Reproduction("reproduced", case=served.cases[0].name, delivery=candidate.code)
                    return column.version, outcome
    return None
