"""Prints the comparison of two front ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from vllm_harness._regression.results.mismatches import Mismatch
from vllm_harness._terminal.tables import Cell as TableCell
from vllm_harness._terminal.tables import escaped, on_terminal, one_line, show_table
from vllm_harness.extras.parity.judging import (
    AnswerPair,
    DifferenceClass,
    FamilyParity,
    FrontEndAnswer,
    Parity,
    Verdict,
)

PARITY_COLUMNS = {
    "python\nright": (Verdict.PYTHON_RIGHT,),
    "rust\nright": (Verdict.RUST_RIGHT,),
    "both\nwrong": (Verdict.WRONG_DIFFERENTLY, Verdict.WRONG_ALIKE),
    "both right,\nnot the same": (Verdict.OTHER_BLANKS, Verdict.WRITTEN_OTHERWISE),
}
"""The verdicts that each column of the table of families counts, by heading."""


def show_parity(console: Console, parity: Parity) -> None:
    """Prints which front end is right: by family, in total, and for each class with an example."""
    headings = ("family", "answers", "same and\nright", *PARITY_COLUMNS)
    show_table(console, headings, [_family_row(family) for family in parity.families], headings[1:])
    for difference in parity.classes:
        _show_class(console, difference)
    for reason, families in _by_reason(parity.not_served).items():
        console.print(f"not compared: {', '.join(families)}: {one_line(reason)}")
    console.print(_total(parity))


def _family_row(family: FamilyParity) -> tuple[TableCell, ...]:
    same = family.answers - sum(family.verdicts.values())
    counts = [
        sum(family.verdicts.get(verdict, 0) for verdict in verdicts) for verdicts in PARITY_COLUMNS.values()
    ]
    return family.family, str(family.answers), str(same), *(str(count or "-") for count in counts)


def _show_class(console: Console, difference: DifferenceClass) -> None:
    """Prints a class of differences: the verdict, the mismatches, their defects, and the smallest example."""
    without = f", {difference.unjudged} without a known defect" if difference.unjudged else ""
    pair = difference.smallest
    console.print()
    _show_folded(
        console,
        f"{difference.verdict} ({', '.join(difference.families)}): {difference.count} in all{without}",
        "bold",
    )
    for name, side in _sides(pair):
        if side.mismatches:
            _show_folded(console, f"  {name}: {_in_words(side.mismatches)}")
    if difference.defects:
        _show_folded(console, f"  known: {', '.join(difference.defects)}")
    _show_folded(console, f"  such as {pair.family}, {pair.group}, {pair.case}, {pair.delivery}")
    answers = [f"{name} answers: {side.example}" for name, side in _sides(pair) if side.example]
    width = console.width - 4 if on_terminal(console) else None
    for text in (f"the model says: {pair.text}", *answers):
        console.print(f"    {one_line(escaped(text), width)}", style="dim")


def _show_folded(console: Console, line: str, style: str = "dim") -> None:
    """Prints a line; on a terminal it wraps with a hanging indent."""
    text = line.lstrip()
    padded = Padding(Text(escaped(text), style), (0, 0, 0, len(line) - len(text)))
    if on_terminal(console):
        console.print(padded, soft_wrap=False)
    else:
        console.print(escaped(line), style=style)


def _sides(pair: AnswerPair) -> tuple[tuple[str, FrontEndAnswer], tuple[str, FrontEndAnswer]]:
    return ("Python", pair.python), ("Rust", pair.rust)


def _in_words(mismatches: Iterable[Mismatch]) -> str:
    return "; ".join(f"{mismatch}, {mismatch.title}" for mismatch in mismatches)


def _by_reason(not_served: Mapping[str, str]) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for family, reason in not_served.items():
        reasons.setdefault(reason, []).append(family)
    return reasons


def _total(parity: Parity) -> str:
    counts = [f"{verdict}: {count}" for verdict in Verdict if (count := parity.count(verdict))]
    same = parity.answers - sum(class_.count for class_ in parity.classes)
    return (
        f"\ncompared answers of each front end: {parity.answers} (families: {len(parity.families)}); "
        f"{'; '.join([f'same and right: {same}', *counts])}. classes of differences: {len(parity.classes)}; "
        f"answers without a known defect: {parity.unjudged}"
        f"{f'; not compared, since tokens of them were merged: {parity.not_held}' if parity.not_held else ''}"
    )
