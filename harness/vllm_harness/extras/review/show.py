"""Prints a review on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vllm_harness._terminal.pace import minutes
from vllm_harness.extras.review.change import few
from vllm_harness.extras.review.failure_text import WIDTH, kind_lines
from vllm_harness.extras.review.verdict import Cause, Named, Review

MOST_KINDS = 6
"""The number of kinds of failures to show; the others are counted."""


def review_text(review: Review) -> str:
    """The text of a review: what ran, what regressed by cause and kind, and the verdict as the last line."""
    return "".join(f"{line}\n" for line in _lines(review))


def headline(review: Review) -> str:
    """The verdict in one line."""
    counts = [(review.total(name), name) for name in ("regressed", "fixed", "unchanged") if review.parts]
    further = [
        (len(review.otherwise), "wrong in another way"),
        (len(review.accepted), "accepted"),
        (len(review.flaky), "flaky"),
        (len(review.not_judged), "could not be judged"),
    ]
    every = [*counts, *(each for each in further if each[0])]
    numbers = ", ".join(f"{number} {name}" for number, name in every)
    details = "; ".join(filter(None, (numbers, "not everything ran" if review.not_run else "")))
    return f"verdict: {review.verdict}{f' ({details})' if details else ''}"


def _lines(review: Review) -> Iterator[str]:
    yield from _folded(f"{review.base} -> ", review.head)
    if review.files:
        yield from _folded("changed: ", few(review.files))
    if review.other_files:
        yield f"other changed files, on which no answer depends: {review.other_files}"
    for part in review.parts:
        yield (
            f"{part.name}: {part.judged} cases in {minutes(part.seconds)}: {part.regressed} regressed, "
            f"{part.fixed} fixed"
        )
    yield from regressed_lines(review.causes)
    yield from _defects(review)
    for title, named in (
        ("accepted", review.accepted),
        ("not run", review.not_run),
        ("could not be judged", review.not_judged),
    ):
        yield from _named(title, named)
    if review.otherwise:
        yield "wrong before and after, with other answers:"
        yield from (f"  {case}" for case in review.otherwise[:MOST_KINDS])
        if more := len(review.otherwise[MOST_KINDS:]):
            yield f"  and {more} more"
    if review.flaky:
        yield "flaky (wrong once, right when it ran again by itself):"
        yield from (f"  {case}" for case in review.flaky)
    if review.run:
        yield f"results: {review.run}"
    yield headline(review)


def regressed_lines(causes: Sequence[Cause]) -> Iterator[str]:
    """Yields the lines about what regressed, by cause and kind, the worst first."""
    number = 0
    for cause in causes:
        yield ""
        cases = f"{cause.cases} {'case' if cause.cases == 1 else 'cases'}"
        yield from _folded(f"{cases} regressed with ", few(cause.files) if cause.files else "the change")
        for kind in cause.kinds:
            number += 1
            if number <= MOST_KINDS:
                yield ""
                yield from kind_lines(number, kind)
            else:
                example = f"{kind.example.family}, {kind.example.case}"
                count = sum(kind.cases.values())
                yield from _folded(f"{number}. ", f"{kind.title}: {count}, such as {example}")
    if causes:
        yield ""


def _defects(review: Review) -> Iterator[str]:
    if review.defects:
        yield "known defects that turned:"
    for defect in review.defects:
        families = few(defect.families, 4)
        yield from _folded(f"  {defect.turn}: ", f"{defect.id} ({families}): {defect.title}")


def _named(title: str, named: tuple[Named, ...]) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for each in named:
        by_reason.setdefault(each.reason, []).append(each.what)
    for reason, what in by_reason.items():
        yield from _folded(f"{title}: ", f"{few(what, 6)}: {reason}")


def _folded(start: str, text: str) -> Iterator[str]:
    """A text folded at blanks."""
    line = start
    for word in text.split(" "):
        if len(line) + len(word) + 1 > WIDTH and line.strip():
            yield line.rstrip()
            line = "  "
        line += f"{word} "
    yield line.rstrip()
