"""Converts the cells of a parser regression run to the records in a run folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vllm_harness._regression.results.cells import CaseResult, CaseVerdict, Cell
from vllm_harness._regression.results.compare import PARSERS_ARE_MADE
from vllm_harness._regression.results.known_defects import ParserDefect, explaining_ids, failure_in
from vllm_harness._runs.records import CaseRecord, Outcome, RunFinding, TargetRecord, case_outcome
from vllm_harness._scripted.families import title_of


def target_of(cell: Cell) -> TargetRecord:
    """Returns the target record for a family's parsers on one vLLM; the engine is recorded as the lane."""
    return TargetRecord(
        id=f"{cell.family}/{cell.environment}/{cell.engine}",
        title=title_of(cell.family),
        family=cell.family,
        lane=cell.engine,
        vllm=cell.environment.removesuffix(f"+{cell.frontend}"),
        environment=cell.described,
        frontend=cell.frontend,
    )


def case_id(group: str, name: str) -> str:
    """The id of a case in the records; cases of several groups may have the same name."""
    return f"{group}: {name}"


def cases_of(cell: Cell, known: Mapping[str, Sequence[ParserDefect]]) -> Iterator[CaseRecord]:
    """Yields the records of a cell's cases; `known` has each family's defects (`known_defects.by_family`).

    If the parsers could not be made, the only record contains the error.
    """
    target = target_of(cell).id
    if cell.start_error:
        reason = cell.start_error.partition("\n")[0]
        yield CaseRecord(
            id=case_id(cell.group, PARSERS_ARE_MADE),
            target=target,
            group=cell.group,
            outcome=Outcome.FINDING,
            reason=reason,
            details=cell.start_error,
            findings=(RunFinding(message=reason),),
        )
    for name, result in cell.cases.items():
        findings = tuple(_findings(cell, name, result, known))
        not_held = (f"{delivery} was not judged: {why}" for delivery, why in result.not_held.items())
        first = next((finding for finding in findings if finding.counts), None) or next(iter(findings), None)
        yield CaseRecord(
            id=case_id(cell.group, name),
            target=target,
            group=cell.group,
            title=f"{name} ({result.topic})",
            outcome=case_outcome(
                findings,
                skipped=bool(result.left_out),
                not_judged=result.verdict is CaseVerdict.NOT_JUDGED,
            ),
            defects=tuple(dict.fromkeys(finding.known for finding in findings if finding.known)),
            reason=result.left_out or (first.message if first else "; ".join(not_held)),
            details=f"the model generates: {result.text}" if findings else "",
            findings=findings,
        )


def _findings(
    cell: Cell, name: str, result: CaseResult, known: Mapping[str, Sequence[ParserDefect]]
) -> Iterator[RunFinding]:
    """Yields a finding for each mismatch in each delivery; one per defect if defects explain the mismatch."""
    for delivery, mismatches in result.mismatches.items():
        for mismatch in mismatches:
            failure = failure_in(cell, name, delivery, mismatch)
            for defect in explaining_ids(failure, known.get(failure.plain_family, ())) or [""]:
                yield RunFinding(
                    code=str(mismatch),
                    message=f"{mismatch.title} ({delivery})",
                    path=str(delivery),
                    expected=result.expected.get(delivery, ""),
                    actual=result.examples.get(delivery, ""),
                    known=defect,
                )
