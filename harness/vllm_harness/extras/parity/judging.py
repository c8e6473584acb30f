"""Two front ends of one vLLM on the same cases: where their answers differ, and which of them is right.

What the model says has a meaning, and an answer that gives it back is right. Cases without an expected
meaning are compared by their mismatches alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from vllm_harness._files.strict import StrictModel
from vllm_harness._regression.cases.case import Group
from vllm_harness._regression.cases.delivery import Delivery, DeliveryField
from vllm_harness._regression.results.cells import CaseVerdict, Cell
from vllm_harness._regression.results.known_defects import ParserDefect, by_family, explaining_ids, failure_in
from vllm_harness._regression.results.mismatches import MismatchField

BLANKS = re.compile(r"\s|\\[nt]")
NO_TEXT = re.compile(r'"(reasoning|content)":"",')


class Verdict(StrEnum):
    """Which of two answers is right."""

    PYTHON_RIGHT = "python right"
    RUST_RIGHT = "rust right"
    WRONG_DIFFERENTLY = "both wrong, differently"
    WRONG_ALIKE = "both wrong, alike"
    OTHER_BLANKS = "both right, other blanks"
    """The same arguments with other blanks between them."""
    WRITTEN_OTHERWISE = "both right, written otherwise"
    """The same arguments in other words of JSON, as `1.0` for `1`."""


class FrontEndAnswer(StrictModel):
    """The answer of one front end.

    Attributes:
        mismatches: from what is expected; none: it is right.
        example: the answer.
        defects: the ids that explain the mismatches.
        unexplained: the mismatches that no defect explains.
    """

    mismatches: tuple[MismatchField, ...] = ()
    example: str | None = None
    defects: tuple[str, ...] = ()
    unexplained: tuple[MismatchField, ...] = ()


class AnswerPair(StrictModel):
    """The two answers to a case in one delivery, where they are not the same and right.

    Attributes:
        family, group, case, delivery: which.
        text: what the model said.
        verdict: which is right.
        python, rust: the answers.
    """

    family: str
    group: Group
    case: str
    delivery: DeliveryField
    text: str
    verdict: Verdict
    python: FrontEndAnswer
    rust: FrontEndAnswer

    @property
    def is_judged(self) -> bool:
        """Whether a known defect of its front end explains all that is wrong on either side."""
        return not (self.python.unexplained or self.rust.unexplained)


class DifferenceClass(StrictModel):
    """The pairs of answers with the same verdict and the same mismatches on each side.

    Attributes:
        verdict: which is right.
        python, rust: the mismatches.
        count: how many pairs there are.
        families: theirs.
        defects: the ids that explain what is wrong.
        unjudged: how many pairs have a mismatch that no defect of that front end explains.
        smallest: the pair with the shortest text.
    """

    verdict: Verdict
    python: tuple[MismatchField, ...]
    rust: tuple[MismatchField, ...]
    count: int
    families: tuple[str, ...]
    defects: tuple[str, ...]
    unjudged: int
    smallest: AnswerPair


class FamilyParity(StrictModel):
    """The pairs of answers of one family.

    Attributes:
        family: which.
        answers: how many pairs there are.
        verdicts: of those that are not the same and right, how many have each verdict.
    """

    family: str
    answers: int
    verdicts: dict[Verdict, int]


class Parity(StrictModel):
    """What a comparison of two front ends found.

    Attributes:
        families: the pairs that were compared, by family.
        classes: of those that are not the same and right, the most frequent of each verdict first.
        not_served: of the families that a front end does not serve, why; they were not compared.
    """

    families: tuple[FamilyParity, ...]
    classes: tuple[DifferenceClass, ...]
    not_served: dict[str, str]

    @property
    def answers(self) -> int:
        """How many pairs were compared."""
        return sum(each.answers for each in self.families)

    @property
    def unjudged(self) -> int:
        """How many pairs have a mismatch that no defect of that front end explains."""
        return sum(each.unjudged for each in self.classes)

    def count(self, verdict: Verdict) -> int:
        """How many pairs have a verdict."""
        return sum(each.count for each in self.classes if each.verdict is verdict)


def parity(
    known: Iterable[ParserDefect],
    python: Iterable[Cell],
    rust: Iterable[Cell],
    not_run: Mapping[str, str] | None = None,
) -> Parity:
    """Compares the cells of Python's front end with those of Rust's, case by case.

    Args:
        known: the defects of parsers.
        python, rust: the cells.
        not_run: the families that have no cells, since a front end does not serve them: why.
    """
    families = by_family(known)
    theirs = {(cell.family, cell.group): cell for cell in rust}
    answers, not_served = dict[str, int](), dict(not_run or {})
    pairs: list[AnswerPair] = []
    for cell in python:
        other = theirs.get((cell.family, cell.group))
        if other is None:
            continue
        if refused := [f"{each.frontend}: {each.start_error}" for each in (cell, other) if each.start_error]:
            not_served[cell.family] = refused[0]
            continue
        answers.setdefault(cell.family, 0)
        for case in [name for name in cell.cases if name in other.cases]:
            both = cell.cases[case], other.cases[case]
            if all(each.verdict is not CaseVerdict.LEFT_OUT for each in both):
                answers[cell.family] += min(each.deliveries for each in both)
                pairs += _compared(families.get(cell.family, []), (cell, other), case)
    return Parity(
        families=tuple(_of_family(name, count, pairs) for name, count in answers.items()),
        classes=tuple(_classes(pairs)),
        not_served=not_served,
    )


def _of_family(family: str, answers: int, pairs: Iterable[AnswerPair]) -> FamilyParity:
    found = Counter(pair.verdict for pair in pairs if pair.family == family)
    verdicts = {verdict: found[verdict] for verdict in Verdict if found[verdict]}
    return FamilyParity(family=family, answers=answers, verdicts=verdicts)


def _compared(known: Sequence[ParserDefect], cells: tuple[Cell, Cell], name: str) -> Iterator[AnswerPair]:
    """The pairs of answers to a case, but for those that are the same and right."""
    results = [cell.cases[name] for cell in cells]
    every = dict.fromkeys(each for result in results for each in (*result.digests, *result.mismatches))
    for delivery in every:
        python, rust = (_side(known, cell, name, delivery) for cell in cells)
        same = len({result.digests.get(delivery) for result in results}) == 1
        if verdict := _verdict(python, rust, same=same):
            yield AnswerPair(
                family=cells[0].family,
                group=cells[0].group,
                case=name,
                delivery=delivery,
                text=results[0].text,
                verdict=verdict,
                python=python,
                rust=rust,
            )


def _side(known: Sequence[ParserDefect], cell: Cell, name: str, delivery: Delivery) -> FrontEndAnswer:
    result = cell.cases[name]
    mismatches = result.mismatches.get(delivery, ())
    failures = [failure_in(cell, name, delivery, each) for each in mismatches]
    ids = {failure.mismatch: explaining_ids(failure, known) for failure in failures}
    return FrontEndAnswer(
        mismatches=mismatches,
        example=result.examples.get(delivery),
        defects=tuple(dict.fromkeys(id_ for found in ids.values() for id_ in found)),
        unexplained=tuple(each for each, found in ids.items() if not found),
    )


def _verdict(python: FrontEndAnswer, rust: FrontEndAnswer, *, same: bool) -> Verdict | None:
    """Which is right; None: both are, and the same."""
    if python.mismatches and rust.mismatches:
        alike = same and set(python.mismatches) == set(rust.mismatches)
        return Verdict.WRONG_ALIKE if alike else Verdict.WRONG_DIFFERENTLY
    if python.mismatches:
        return Verdict.RUST_RIGHT
    if rust.mismatches:
        return Verdict.PYTHON_RIGHT
    return None if same else _written(python.example or "", rust.example or "")


def _written(python: str, rust: str) -> Verdict:
    """How two right answers differ, by their examples, of which a long one is cut."""
    first, other = sorted(map(_without_blanks, (python, rust)), key=len)
    return Verdict.OTHER_BLANKS if other.startswith(first) else Verdict.WRITTEN_OTHERWISE


def _without_blanks(example: str) -> str:
    """An answer without blanks and line ends, and without the texts that hold nothing else."""
    return NO_TEXT.sub("", BLANKS.sub("", example))


def _classes(pairs: Iterable[AnswerPair]) -> list[DifferenceClass]:
    sorted_out: dict[tuple[object, ...], list[AnswerPair]] = {}
    for pair in pairs:
        key = (pair.verdict, frozenset(pair.python.mismatches), frozenset(pair.rust.mismatches))
        sorted_out.setdefault(key, []).append(pair)
    found = [_class(alike) for alike in sorted_out.values()]
    return sorted(found, key=lambda each: (list(Verdict).index(each.verdict), -each.count))


def _class(pairs: Sequence[AnswerPair]) -> DifferenceClass:
    smallest = min(pairs, key=lambda pair: (len(pair.text), pair.family, pair.case, pair.delivery.code))
    sides = [side for pair in pairs for side in (pair.python, pair.rust)]
    return DifferenceClass(
        verdict=smallest.verdict,
        python=smallest.python.mismatches,
        rust=smallest.rust.mismatches,
        count=len(pairs),
        families=tuple(sorted({pair.family for pair in pairs})),
        defects=tuple(sorted({id_ for side in sides for id_ in side.defects})),
        unjudged=sum(not pair.is_judged for pair in pairs),
        smallest=smallest,
    )
