"""Tables and lines on a terminal: when they are folded, and which characters are escaped."""

from __future__ import annotations

import pytest
from rich.text import Text

from tests.screens import Screen
from vllm_harness._terminal.tables import one_line, plain_console, show_table

HEADINGS = ("name", "size", "what it is")
ROWS = [("first", "12", "a text of some length that needs its room"), ("second", "-", "short")]


def shown(width: int, *, terminal: bool = True, whole: bool = False) -> list[str]:
    screen = Screen(terminal=terminal)
    show_table(plain_console(screen, width=width), HEADINGS, ROWS, {"size"}, whole=whole)
    return screen.lines


WHOLE = [
    "name    size  what it is",
    "first     12  a text of some length that needs its room",
    "second     -  short",
]


@pytest.mark.parametrize("width", [10, 40, 80])
def test_a_row_is_one_line_without_a_terminal(width: int) -> None:
    assert shown(width, terminal=False) == WHOLE


def test_a_row_is_one_line_on_a_wide_terminal() -> None:
    assert shown(len(WHOLE[1])) == WHOLE
    assert shown(20, whole=True) == WHOLE


def test_a_narrower_terminal_folds_the_last_column() -> None:
    assert shown(40) == [
        "name    size  what it is",
        "first     12  a text of some length that",
        "              needs its room",
        "second     -  short",
    ]


def test_a_very_narrow_terminal_shows_blocks_without_empty_cells() -> None:
    assert shown(30) == [
        "first",
        "  size        12",
        "  what it is  a text of some",
        "              length that",
        "              needs its room",
        "second",
        "  what it is  short",
    ]


def test_a_cell_is_escaped_text_on_one_line() -> None:
    screen = Screen(terminal=True)
    show_table(plain_console(screen, width=80), ("a", "b"), [("[red]x\x1b\n[/]", Text(":key:", "red"))])
    assert screen.lines[1:] == [r"[red]x\x1b\n[/]  :key:"]


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
def test_one_line(text: str, width: int | None, line: str) -> None:
    assert one_line(text, width) == line
