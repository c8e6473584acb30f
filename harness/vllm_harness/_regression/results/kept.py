"""A cell of parser regression as records of a run folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vllm_harness._regression.results.cells import CaseResult, Cell
from vllm_harness._regression.results.explained import ParserDefect, explaining, failure_in
from vllm_harness._runs import records
from vllm_harness._runs.records import Outcome, RunFinding, TargetRecord, case_outcome


def target_of(cell: Cell) -> TargetRecord:
    """The family's parsers on one vLLM; its lane is the engine."""
    return TargetRecord(
        id=f"{cell.family}/{cell.environment}/{cell.engine}",
        title=cell.family,
        family=cell.family,
        lane=cell.engine,
        vllm=cell.environment.removesuffix(f"+{cell.frontend}"),
        environment=cell.described,
        frontend=cell.frontend,
    )


def cases_of(cell: Cell, known: Mapping[str, Sequence[ParserDefect]]) -> Iterator[records.CaseRecord]:
    """The cases of a cell; where the parsers could not be made, one that says so.

    Args:
        cell: that has finished.
        known: the defects of each family; see `explained.by_family`.
    """
    target = target_of(cell).id
    if cell.start_error:
        yield records.CaseRecord(
            id=f"{cell.group}: the parsers are made",
            target=target,
            group=cell.group,
            outcome=Outcome.FINDING,
            reason=cell.start_error.partition("\n")[0],
            details=cell.start_error,
            findings=(RunFinding(message=cell.start_error.partition("\n")[0]),),
        )
    for name, result in cell.cases.items():
        yield _case(cell, target, name, result, known)


def _case(
    cell: Cell, target: str, name: str, result: CaseResult, known: Mapping[str, Sequence[ParserDefect]]
) -> records.CaseRecord:
    findings = tuple(_findings(cell, name, result, known))
    defects = tuple(dict.fromkeys(each.known for each in findings if each.known))
    wrong = any(each.counts for each in findings)
    return records.CaseRecord(
        id=name,
        target=target,
        group=cell.group,
        title=f"{name} ({result.topic})",
        outcome=case_outcome(findings, skipped=bool(result.left_out)),
        defects=defects,
        reason=result.left_out or next((each.message for each in findings if each.counts or not wrong), ""),
        details=f"the model generates: {result.text}" if findings else "",
        findings=findings,
    )


def _findings(
    cell: Cell, name: str, result: CaseResult, known: Mapping[str, Sequence[ParserDefect]]
) -> Iterator[RunFinding]:
    """A finding for each mismatch in each delivery, and for each defect that explains it."""
    for delivery, mismatches in result.mismatches.items():
        for mismatch in mismatches:
            failure = failure_in(cell, name, delivery, mismatch)
            for defect in explaining(failure, known.get(failure.plain_family, ())) or [""]:
                yield RunFinding(
                    code=str(mismatch),
                    message=f"{mismatch.title} ({delivery})",
                    path=str(delivery),
                    actual=result.examples.get(delivery, ""),
                    known=defect,
                )
