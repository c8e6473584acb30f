"""Prints the differences between two cassettes in meaning and in protocol, in a table for each turn."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from vllm_harness._cassettes.checking import about
from vllm_harness._cassettes.comparing import TurnDifference, compare
from vllm_harness._cassettes.reading import read
from vllm_harness._terminal.tables import escaped, plain_console, show_table


def compare_cassettes(left: Path, right: Path, as_json: bool) -> bool:
    """Prints where two cassettes differ, and returns whether they do.

    Values that change with each run, such as ids and times, are compared only by their form.
    """
    first, second = read(left).cassette, read(right).cassette
    differences = compare(first, second)
    if as_json:
        print(json.dumps([asdict(difference) for difference in differences], indent=2, ensure_ascii=False))
    else:
        console = plain_console()
        console.print(escaped(f"left:  {left}: {about(first.recorded)}"))
        console.print(escaped(f"right: {right}: {about(second.recorded)}"))
        show_differences(differences)
    return bool(differences)


def show_differences(differences: list[TurnDifference]) -> None:
    """Prints a table of differences for each turn, and a table of those that all turns share."""
    console = plain_console()
    turns = list(dict.fromkeys(difference.turn for difference in differences))
    times = Counter(_row(difference) for difference in differences)
    shared = [row for row, count in times.items() if count == len(turns) > 1]
    tables = {"every turn": shared} if shared else {}
    tables |= {
        f"turn {turn}": [_row(difference) for difference in differences if difference.turn == turn]
        for turn in turns
    }
    for title, rows in tables.items():
        own = [row for row in rows if rows is shared or row not in shared]
        if own:
            console.print(f"\n{escaped(title)}")
            show_table(console, ("layer", "where", "left | right"), own)
    if not differences:
        console.print("no difference")


def _row(difference: TurnDifference) -> tuple[str, str, str]:
    return difference.layer, difference.place, f"{difference.left} | {difference.right}"
