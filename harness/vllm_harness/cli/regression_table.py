"""The table of `vllm-harness matrix`: a row a family, and in each column the counts of a group of cases."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from vllm_harness.regression.cases.questions import GROUPS
from vllm_harness.regression.results.compare import Baseline, against
from vllm_harness.regression.results.results import Cell, Engine
from vllm_harness.terminal.tables import Cell as Shown
from vllm_harness.terminal.tables import fits, on_terminal, one_line, show_table

HOW: dict[Engine, str] = {"in-process": "driven in process", "http": "asked over HTTP"}
LEGEND = "passed / known / failed / left out, because the format has no way to say it"
PARSERS = ("tool parser", "reasoning parser", "tokenizer")

Column = tuple[str, str]
"""An environment and a group of cases."""


def show_cells(console: Console, cells: Sequence[Cell], known: Baseline | None) -> None:
    """Prints the counts of cells, those whose parsers vLLM could not make, and what was asked.

    A terminal that is too narrow for all that shows no parsers, and a table for each environment.

    Args:
        cells: in any order.
        known: what is known to be wrong.
    """
    columns = sorted(
        {(cell.environment, cell.group) for cell in cells},
        key=lambda column: (column[0], GROUPS.index(column[1])),
    )
    environments = list(dict.fromkeys(environment for environment, _ in columns))
    headings, rows = _table(cells, columns, known, len(environments) > 1)
    parsers = zip(rows, _parsers(cells), strict=True)
    wide_headings, wide_rows = (*headings, *PARSERS), [(*row, *more) for row, more in parsers]
    if not on_terminal(console) or fits(console, wide_headings, wide_rows):
        headings, rows = wide_headings, wide_rows
    if len(environments) == 1 or not on_terminal(console) or fits(console, headings, rows):
        show_table(console, headings, rows, headings[1 : 1 + len(columns)])
    else:
        for environment in environments:
            console.print(f"{environment}:")
            some = [cell for cell in cells if cell.environment == environment]
            headings, rows = _table(some, [each for each in columns if each[0] == environment], known, False)
            show_table(console, headings, rows, headings[1:])
    _show_words(console, cells)


def _table(
    cells: Sequence[Cell], columns: Sequence[Column], known: Baseline | None, named: bool
) -> tuple[tuple[str, ...], list[tuple[Shown, ...]]]:
    """Headings, with the environment where it is to be named, and a row a family."""
    headings = ("family", *("\n".join(column) if named else column[1] for column in columns))
    of = {(cell.family, cell.environment, cell.group): cell for cell in cells}
    return headings, [
        (family, *(_counts(of.get((family, *column)), known) for column in columns))
        for family in _families(cells)
    ]


def _families(cells: Sequence[Cell]) -> list[str]:
    return sorted({cell.family for cell in cells})


def _parsers(cells: Sequence[Cell]) -> list[tuple[str, ...]]:
    of = {cell.family: cell for cell in cells}
    return [
        (of[family].tool_parser or "-", of[family].reasoning_parser or "-", of[family].tokenizer)
        for family in _families(cells)
    ]


def _counts(cell: Cell | None, known: Baseline | None) -> Shown:
    if cell is None:
        return "-"
    if cell.refused:
        return Text("refused", "red")
    failed = cell.count("fail")
    compared = known is not None and known.covers_cell(cell)
    worse = sum(change.worse for change in against(known, [cell])) if known and compared else failed
    text = f"{cell.count('pass')}/{failed - worse}/{worse}/{cell.count('left out')}"
    return Text(text, "red" if worse else "green")


def _show_words(console: Console, cells: Sequence[Cell]) -> None:
    console.print(LEGEND)
    for cell in cells:
        if cell.refused:
            why = one_line(cell.refused)
            console.print(f"refused: {cell.family}, {cell.group} on {cell.environment}: {why}")
    for described in dict.fromkeys(f"{cell.described}; parsers {HOW[cell.engine]}" for cell in cells):
        console.print(f"server environment: {described}")
