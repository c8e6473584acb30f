"""Prints tables whose rows stay together, and escapes control characters in untrusted text."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import IO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

Cell = str | Text
"""A string, whose control characters are escaped, or styled text."""

NOTHING = ("", "-")
"""Cells without information."""
_UNLIMITED = 100_000
_NARROWEST = 24
"""The last column of a table is folded only if it can be at least this wide."""


def plain_console(file: IO[str] | None = None, *, stderr: bool = False, width: int | None = None) -> Console:
    """A console that prints text unchanged: without markup, emoji codes or line wrapping."""
    return Console(
        file=file, stderr=stderr, width=width, markup=False, emoji=False, highlight=False, soft_wrap=True
    )


def on_terminal(console: Console) -> bool:
    """Whether the output is a terminal; a log with forced colours is not."""
    return console.file.isatty()


def show_table(
    console: Console,
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    numbers: Collection[str] = (),
    *,
    whole: bool = False,
) -> None:
    """Prints a table without a frame.

    If the output is not a terminal, each row is one whole line. On a terminal that is too narrow, the last
    column is folded; if that is not enough, each row becomes a block: the first cell, and below it a line for
    each other cell that is not empty.

    Args:
        headings: the headings of the columns, which may have several lines.
        numbers: the headings of right-aligned columns.
        whole: print each row as one line on a terminal as well.
    """
    table = _table(headings, rows, numbers)
    if whole or not on_terminal(console) or fits(console, headings, rows):
        show_whole(console, table)
    elif _width(console, _table(headings[:-1], [row[:-1] for row in rows])) + _NARROWEST <= console.width:
        table.columns[-1].no_wrap, table.columns[-1].overflow = False, "fold"
        console.print(table, soft_wrap=False)
    else:
        _show_blocks(console, headings, rows)


def fits(console: Console, headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> bool:
    """Whether the console is wide enough for a table."""
    return _width(console, _table(headings, rows)) <= console.width


def one_line(text: str, width: int | None = None) -> str:
    """The first line of an untrusted string, with control characters escaped, truncated with `...`."""
    line = escaped(text.strip().partition("\n")[0])
    return line if width is None or len(line) <= width else line[: max(0, width - 3)] + "..."


def escaped(text: str) -> str:
    """An untrusted string, with control characters and line breaks escaped."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def tell(line: str) -> None:
    """Prints an untrusted line on standard error."""
    plain_console(stderr=True).print(escaped(line))


def printable(text: str) -> str:
    """An untrusted string for a terminal, with control characters escaped but line breaks kept."""
    return "\n".join(map(escaped, text.split("\n")))


def show_whole(console: Console, table: Table) -> None:
    """Prints a table at its full width, even on a narrower terminal."""
    console.print(_Whole(table), soft_wrap=True)


@dataclass(frozen=True)
class _Whole:
    """A table that is rendered at its full width."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self.table, options.update(width=_UNLIMITED), pad=False):
            yield from _without_end(line)
            yield Segment.line()


def _without_end(line: Sequence[Segment]) -> list[Segment]:
    """A line without trailing white space."""
    kept = list(line)
    while kept and not kept[-1].text.strip():
        kept.pop()
    return [*kept[:-1], Segment(kept[-1].text.rstrip(), kept[-1].style)] if kept else []


def _table(headings: Sequence[str], rows: Sequence[Sequence[Cell]], numbers: Collection[str] = ()) -> Table:
    columns = [
        Column(heading, justify="right" if heading in numbers else "left", no_wrap=True)
        for heading in headings
    ]
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(_text, row))
    return table


def _width(console: Console, table: Table) -> int:
    return Measurement.get(console, console.options.update(width=_UNLIMITED), table).maximum


def _show_blocks(console: Console, headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    for row in rows:
        console.print(_text(row[0]), style="bold", soft_wrap=False)
        grid = Table.grid(Column(no_wrap=True, style="dim"), Column(overflow="fold"), padding=(0, 2, 0, 0))
        for heading, cell in zip(headings[1:], row[1:], strict=True):
            if str(cell) not in NOTHING:
                grid.add_row(heading.replace("\n", " "), _text(cell))
        console.print(Padding(grid, (0, 0, 0, 2)), soft_wrap=False)


def _text(cell: Cell) -> Text:
    return cell if isinstance(cell, Text) else Text(escaped(cell))
