"""Tables and lines of the terminal: what is kept whole, what is folded, and what is escaped."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from harness.terminal import one_line, show_table

HEADINGS = ("name", "size", "what it is")
ROWS = [("first", "12", "a text of some length that needs its room"), ("second", "-", "short")]


def shown(width: int, *, terminal: bool = True, whole: bool = False) -> list[str]:
    file = io.StringIO()
    console = Console(
        file=file,
        width=width,
        force_terminal=terminal,
        color_system=None,
        highlight=False,
        legacy_windows=False,
    )
    show_table(console, HEADINGS, ROWS, {"size"}, whole=whole)
    return file.getvalue().splitlines()


WHOLE = [
    "name    size  what it is",
    "first     12  a text of some length that needs its room",
    "second     -  short",
]


@pytest.mark.parametrize("width", [10, 40, 80])
def test_a_row_is_one_line_where_there_is_no_terminal(width: int) -> None:
    assert shown(width, terminal=False) == WHOLE


def test_a_terminal_that_is_wide_enough_shows_the_same() -> None:
    assert shown(len(WHOLE[1])) == WHOLE
    assert shown(20, whole=True) == WHOLE


def test_a_narrower_terminal_folds_the_last_column() -> None:
    lines = shown(40)
    assert [line.rstrip() for line in lines] == [
        "name    size  what it is",
        "first     12  a text of some length that",
        "              needs its room",
        "second     -  short",
    ]


def test_a_terminal_with_no_room_for_columns_shows_blocks_without_what_says_nothing() -> None:
    lines = [line.rstrip() for line in shown(30)]
    assert lines == [
        "first",
        "  size        12",
        "  what it is  a text of some",
        "              length that",
        "              needs its room",
        "second",
        "  what it is  short",
    ]


def test_markup_in_a_cell_is_text() -> None:
    file = io.StringIO()
    show_table(Console(file=file, width=80), ("a", "b"), [("[red]x[/]", Text("y", "red"))])
    assert "[red]x[/]  y" in file.getvalue()


@pytest.mark.parametrize(
    ("text", "width", "line"),
    [
        ("one\ntwo", None, "one"),
        ("  one", None, "one"),
        ("\x1b[31mred\x07", None, "\\x1b[31mred\\x07"),
        ("Grüße, 世界", None, "Grüße, 世界"),
        ("0123456789", 8, "01234..."),
        ("01234567", 8, "01234567"),
        ("", 8, ""),
    ],
)
def test_a_text_from_outside_is_one_line(text: str, width: int | None, line: str) -> None:
    assert one_line(text, width) == line
