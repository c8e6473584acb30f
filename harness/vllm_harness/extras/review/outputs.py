"""Writes a review for machines and pull requests: JSON, Markdown, JUnit, GitHub's annotations, records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import dedent

from vllm_harness._defects.registry import load_defects
from vllm_harness._protocol.formats import workflow_command
from vllm_harness._regression.results.known_defects import by_family, parser_defects
from vllm_harness._regression.results.run_records import case_id, cases_of, target_of
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.records import CaseRecord, Outcome, RunFinding, TargetRecord, case_outcome
from vllm_harness._runs.report.junit import junit
from vllm_harness._runs.report.run import read_run
from vllm_harness._terminal.markdown import code_span
from vllm_harness._terminal.pace import minutes
from vllm_harness.extras.review.change import few
from vllm_harness.extras.review.failure_text import failure_lines, kind_lines
from vllm_harness.extras.review.parsers import PartResult
from vllm_harness.extras.review.show import MOST_KINDS, headline
from vllm_harness.extras.review.verdict import Cause, FailureKind, Named, Review, ShownFailure

BEFORE = "wrong before the change"
"""What explains a mismatch of the base that no known defect explains."""
MARK = "<!-- vllm-harness review -->"
"""The first line of a comment, by which a workflow finds the comment that it made before."""
_VISIBLE = 30
"""The longest failure, in lines, that a comment shows unfolded."""


def schema_text() -> str:
    """The JSON Schema of a review."""
    return json.dumps(Review.model_json_schema(), indent=1) + "\n"


def comment(review: Review) -> str:
    """A comment for a pull request: the verdict and the worst failure; the rest is folded."""
    return "".join(f"{line}\n" for line in _comment(review))


def _comment(review: Review) -> Iterator[str]:
    yield MARK
    yield f"### vLLM harness, {headline(review)}"
    yield ""
    changed = f"; changed: {code_span(few(review.files))}" if review.files else ""
    yield f"{code_span(review.base)} → {code_span(review.head)}{changed}"
    if review.parts:
        yield ""
        yield "| part | regressed | fixed | unchanged | flaky | accepted | time |"
        yield "|---|--:|--:|--:|--:|--:|--:|"
    for part in review.parts:
        numbers = (part.regressed, part.fixed, part.unchanged, len(part.flaky), part.accepted)
        yield f"| {part.name} | {' | '.join(map(str, numbers))} | {minutes(part.seconds)} |"
    kinds = [(cause, kind) for cause in review.causes for kind in cause.kinds]
    for number, (cause, kind) in enumerate(kinds[:MOST_KINDS], start=1):
        yield from _kind(number, cause, kind)
    if len(kinds) > MOST_KINDS:
        yield ""
        yield f"{len(kinds) - MOST_KINDS} more kinds of failures are in the results."
    yield from _folded(
        "known defects that turned", [f"{turn.turn}: `{turn.id}` {turn.title}" for turn in review.defects]
    )
    yield from _folded("accepted regressions", _named(review.accepted))
    yield from _folded("flaky: wrong once, right when they ran again", list(review.flaky))
    yield from _folded("wrong before and after the change, with other answers", list(review.otherwise))
    yield from _folded("not run", _named(review.not_run))
    if review.not_judged:
        yield ""
        yield "**Could not be judged:** " + "; ".join(_named(review.not_judged))


def _kind(number: int, cause: Cause, kind: FailureKind) -> Iterator[str]:
    lines = list(kind_lines(number, kind, 100))
    title = (
        f"{kind.title}: {sum(kind.cases.values())} with {few(cause.files) if cause.files else 'the change'}"
    )
    open_ = number == 1 and len(lines) <= _VISIBLE
    yield ""
    yield f"**{number}. {title}**" if open_ else f"<details><summary>{number}. {title}</summary>"
    fence = "`" * max(3, max(len(run) for run in _runs("\n".join(lines))) + 1)
    yield ""
    yield f"{fence}text"
    yield from dedent("\n".join(lines[1:])).splitlines()
    yield fence
    if not open_:
        yield "</details>"


def _runs(text: str) -> list[str]:
    """The runs of backticks in a text."""
    return ["", *"".join(char if char == "`" else " " for char in text).split()]


def _folded(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield f"<details><summary>{len(lines)} {title}</summary>"
        yield ""
        yield from (f"- {line}" for line in lines[:50])
        yield "</details>"


def _named(named: Sequence[Named]) -> list[str]:
    return [f"{each.what}: {each.reason}" for each in named]


def github_annotations(review: Review) -> str:
    """GitHub annotations: an error for each kind of failure, at the first changed file of its cause."""
    commands = []
    for cause in review.causes:
        place = {"file": f"vllm/{cause.files[0]}"} if cause.files else {}
        for kind in cause.kinds[:MOST_KINDS]:
            text = "\n".join(failure_lines(kind.example))
            title = f"{kind.title}: {sum(kind.cases.values())} cases"
            commands.append(workflow_command("error", text, **place, title=title))
    commands += [
        workflow_command("warning", f"could not be judged: {line}") for line in _named(review.not_judged)
    ]
    commands += [workflow_command("warning", f"flaky: {case}") for case in review.flaky]
    return "\n".join([*commands, workflow_command("notice", headline(review))]) + "\n"


def write_records(review: Review, results: Sequence[PartResult], writer: RunWriter) -> None:
    """Writes the cases after the change as records, of which only regressions count as findings."""
    known = by_family(parser_defects(load_defects()))
    for result in results:
        failures = {(each.family, case_id(each.group, each.case)): each for each in result.failures}
        for cell in result.cells:
            writer.write(target_of(cell))
            for case in cases_of(cell, known):
                writer.write(_judged(case, failures.pop((cell.family, case.id), None)))
        for failure in failures.values():
            target = TargetRecord(id=failure.family, title=failure.family, vllm=review.head)
            writer.write(target)
            writer.write(_record(failure))


def _judged(case: CaseRecord, failure: ShownFailure | None) -> CaseRecord:
    """The record of a case; if the case did not regress, something explains each of its findings."""
    if failure:
        text = "\n".join(failure_lines(failure))
        return case.model_copy(update={"details": text, "outcome": Outcome.FINDING, "reason": failure.title})
    findings = tuple(each.model_copy(update={"known": each.known or BEFORE}) for each in case.findings)
    outcome = case_outcome(findings, skipped=case.outcome is Outcome.SKIPPED)
    return case.model_copy(update={"findings": findings, "outcome": outcome})


def _record(failure: ShownFailure) -> CaseRecord:
    return CaseRecord(
        id=failure.case,
        target=failure.family,
        group=failure.group,
        outcome=Outcome.FINDING,
        reason=failure.title,
        details="\n".join(failure_lines(failure)),
        findings=(RunFinding(message=failure.title, actual=failure.actual.error),),
    )


def _json(review: Review, folder: Path) -> str:
    return review.model_dump_json(indent=1) + "\n"


FILES: Mapping[str, Callable[[Review, Path], str]] = {
    "review.json": _json,
    "comment.md": lambda review, _: comment(review),
    "annotations.txt": lambda review, _: github_annotations(review),
    "junit.xml": lambda _, folder: junit(read_run(folder)),
}
"""The files of a review, by name; each is made from the review and the folder of its run."""
