"""The imports of the package, held to the table and the floors of ARCHITECTURE.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "harness" / "vllm_harness"
ROW = re.compile(r"^\| (\d+) \| `(\w+)` \| [^|]+ \|([^|]*)\|$", re.MULTILINE)


@dataclass(frozen=True)
class Room:
    """A row of the table."""

    floor: int
    imports: frozenset[str]


def drawn() -> dict[str, Room]:
    """The rooms of the table by their names."""
    rows = ROW.findall((ROOT / "ARCHITECTURE.md").read_text())
    return {name: Room(int(floor), frozenset(re.findall(r"\w+", imports))) for floor, name, imports in rows}


def built() -> dict[str, set[str]]:
    """What each room of the package imports of the others."""
    rooms: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room != "__init__":
            rooms.setdefault(room, set()).update(set(_imported(path)) - {room})
    return rooms


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "vllm_harness" and len(parts) > 1:
                yield parts[1]


def test_the_table_names_what_is_built() -> None:
    assert {name: set(room.imports) for name, room in drawn().items()} == built()


def test_imports_point_down() -> None:
    rooms = drawn()
    upward = [
        f"{name} -> {other}"
        for name, room in rooms.items()
        for other in room.imports
        if rooms[other].floor >= room.floor
    ]
    assert not upward
