"""Compares two front ends of one vLLM on the same cases: where their answers differ, and which is right.

An answer is right if its meaning matches what the model says. Cases without an expected meaning are compared
by their mismatches alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from vllm_harness._exchange.delivery import Delivery, DeliveryField
from vllm_harness._files.strict import StrictModel
from vllm_harness._regression.cases.case import Group
from vllm_harness._regression.results.cells import Cell
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
    OTHER_BLANKS = "both right, different white space"
    """The same arguments with different whitespace."""
    WRITTEN_OTHERWISE = "both right, written differently"
    """The same arguments in another JSON notation, such as `1.0` for `1`."""


class FrontEndAnswer(StrictModel):
    """The answer of one front end.

    Attributes:
        mismatches: the differences from the expected meaning; empty if the answer is right.
        example: the answer, truncated if it is long.
        defects: the ids of the defects that explain the mismatches.
        unexplained: the mismatches that no defect explains.
    """

    mismatches: tuple[MismatchField, ...] = ()
    example: str | None = None
    defects: tuple[str, ...] = ()
    unexplained: tuple[MismatchField, ...] = ()


class AnswerPair(StrictModel):
    """The two answers to a case in one delivery, if one is wrong or they differ.

    Attributes:
        family, group, case, delivery: the case and its delivery.
        text: what the model said.
        verdict: which answer is right.
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
        """Whether known defects explain all mismatches on both sides."""
        return not (self.python.unexplained or self.rust.unexplained)


class DifferenceClass(StrictModel):
    """The pairs of answers with the same verdict and the same mismatches on each side.

    Attributes:
        verdict: which answer is right.
        python, rust: the mismatches of each side.
        count: the number of pairs.
        families: the families of the pairs.
        defects: the ids of the defects that explain the mismatches.
        unjudged: the number of pairs with a mismatch that no defect of its front end explains.
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
        family: the name of the family.
        answers: the number of pairs.
        verdicts: the number of pairs with each verdict; pairs of equal, right answers have none.
    """

    family: str
    answers: int
    verdicts: dict[Verdict, int]


class Parity(StrictModel):
    """The result of a comparison of two front ends.

    Attributes:
        families: the counts of each family that was compared.
        classes: the classes of differences, by verdict, the most frequent first.
        not_served: the families that a front end does not serve, with the reason; they were not compared.
        not_held: the number of answers that were not compared, since a front end merged tokens of them.
    """

    families: tuple[FamilyParity, ...]
    classes: tuple[DifferenceClass, ...]
    not_served: dict[str, str]
    not_held: int = 0

    @property
    def answers(self) -> int:
        """The number of pairs that were compared."""
        return sum(family.answers for family in self.families)

    @property
    def unjudged(self) -> int:
        """The number of pairs with a mismatch that no defect of its front end explains."""
        return sum(class_.unjudged for class_ in self.classes)

    def count(self, verdict: Verdict) -> int:
        """The number of pairs with a verdict."""
        return sum(class_.count for class_ in self.classes if class_.verdict is verdict)


def parity(
    known: Iterable[ParserDefect],
    python: Iterable[Cell],
    rust: Iterable[Cell],
    not_run: Mapping[str, str] | None = None,
) -> Parity:
    """Compares the cells of the Python front end with those of the Rust front end, case by case.

    Args:
        known: the known parser defects.
        python, rust: the cells.
        not_run: the families without cells, with the reason why a front end does not serve them.
    """
    families = by_family(known)
    rust_cells = {(cell.family, cell.group): cell for cell in rust}
    answers, not_served = dict[str, int](), dict(not_run or {})
    pairs: list[AnswerPair] = []
    not_held: list[Delivery] = []
    for cell in python:
        other = rust_cells.get((cell.family, cell.group))
        if other is None:
            continue
        if errors := [f"{each.frontend}: {each.start_error}" for each in (cell, other) if each.start_error]:
            not_served[cell.family] = errors[0]
            continue
        answers.setdefault(cell.family, 0)
        for case in [name for name in cell.cases if name in other.cases]:
            both = cell.cases[case], other.cases[case]
            not_held += [delivery for result in both for delivery in result.not_held]
            if all(result.is_judged for result in both):
                answers[cell.family] += min(result.deliveries for result in both)
                pairs += _compared(families.get(cell.family, []), (cell, other), case)
    return Parity(
        families=tuple(_of_family(name, count, pairs) for name, count in answers.items()),
        classes=tuple(_classes(pairs)),
        not_served=not_served,
        not_held=len(not_held),
    )


def _of_family(family: str, answers: int, pairs: Iterable[AnswerPair]) -> FamilyParity:
    counts = Counter(pair.verdict for pair in pairs if pair.family == family)
    verdicts = {verdict: counts[verdict] for verdict in Verdict if counts[verdict]}
    return FamilyParity(family=family, answers=answers, verdicts=verdicts)


def _compared(known: Sequence[ParserDefect], cells: tuple[Cell, Cell], name: str) -> Iterator[AnswerPair]:
    """The pairs of answers to a case, except for pairs of equal, right answers."""
    results = [cell.cases[name] for cell in cells]
    deliveries = dict.fromkeys(each for result in results for each in (*result.digests, *result.mismatches))
    not_held = {each for result in results for each in result.not_held}
    for delivery in (each for each in deliveries if each not in not_held):
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
    failures = [failure_in(cell, name, delivery, mismatch) for mismatch in mismatches]
    ids = {failure.mismatch: explaining_ids(failure, known) for failure in failures}
    return FrontEndAnswer(
        mismatches=mismatches,
        example=result.examples.get(delivery),
        defects=tuple(dict.fromkeys(id_ for explanations in ids.values() for id_ in explanations)),
        unexplained=tuple(mismatch for mismatch, explanations in ids.items() if not explanations),
    )


def _verdict(python: FrontEndAnswer, rust: FrontEndAnswer, *, same: bool) -> Verdict | None:
    """Which answer is right; None if both are right and equal."""
    if python.mismatches and rust.mismatches:
        alike = same and set(python.mismatches) == set(rust.mismatches)
        return Verdict.WRONG_ALIKE if alike else Verdict.WRONG_DIFFERENTLY
    if python.mismatches:
        return Verdict.RUST_RIGHT
    if rust.mismatches:
        return Verdict.PYTHON_RIGHT
    return None if same else _written(python.example or "", rust.example or "")


def _written(python: str, rust: str) -> Verdict:
    """How two right answers differ, judged by their examples; a long example is truncated."""
    first, other = sorted(map(_without_blanks, (python, rust)), key=len)
    return Verdict.OTHER_BLANKS if other.startswith(first) else Verdict.WRITTEN_OTHERWISE


def _without_blanks(example: str) -> str:
    """Removes all whitespace from an answer, and then the texts that are empty without it."""
    return NO_TEXT.sub("", BLANKS.sub("", example))


def _classes(pairs: Iterable[AnswerPair]) -> list[DifferenceClass]:
    classes: dict[tuple[object, ...], list[AnswerPair]] = {}
    for pair in pairs:
        key = (pair.verdict, frozenset(pair.python.mismatches), frozenset(pair.rust.mismatches))
        classes.setdefault(key, []).append(pair)
    order = list(Verdict)
    return sorted(map(_class, classes.values()), key=lambda each: (order.index(each.verdict), -each.count))


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
