"""The layers of the package, held to the tables of ARCHITECTURE.md, and the budget of the core's lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "harness" / "vllm_harness"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
LAYERS = {name: int(layer) for layer, name in re.findall(r"^\| (\d+) \| `([\w.]+)` \|", PAGE, re.MULTILINE)}
EXTRAS = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))

MOST_LINES, MOST_CODE, MOST_PACKAGES = 44_000, 28_600, 16
"""The budget of the core: it may fall, and no change raises it; who adds to the core takes as much away."""


def _core() -> list[Path]:
    files = sorted(PACKAGE.rglob("*.py"))
    return [path for path in files if "extras" not in path.relative_to(PACKAGE).parts]


def _package(parts: tuple[str, ...]) -> str:
    """The row of the table that a module belongs to: the longest name that its own begins with."""
    name = ".".join(parts)
    rows = [row for row in (*LAYERS, "extras") if name == row or name.startswith(f"{row}.")]
    return max(rows, key=len, default=parts[0])


def _imports() -> Iterator[tuple[Path, str, str]]:
    """Each module of the core, its package, and a package that it imports from."""
    for path in _core():
        inside = path.relative_to(PACKAGE).with_suffix("").parts
        if inside == ("__init__",):
            continue
        for name in _imported(path):
            parts = tuple(name.split("."))
            if parts[0] == "vllm_harness" and len(parts) > 1:
                yield path, _package(inside), _package(parts[1:])


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_the_page_stays_short() -> None:
    assert len(PAGE.splitlines()) <= 60


def test_the_tables_name_what_is_built() -> None:
    built = {_package(path.relative_to(PACKAGE).with_suffix("").parts) for path in _core()} - {"__init__"}
    assert built == LAYERS.keys()
    extras = PACKAGE / "extras"
    if extras.exists():
        assert {path.name for path in extras.iterdir() if (path / "__init__.py").exists()} == EXTRAS


def test_imports_point_down_and_the_core_imports_no_extra() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}: {package} -> {other}"
        for path, package, other in _imports()
        if package != other and LAYERS.get(other, 99) >= LAYERS[package]
    ]
    assert wrong == []


def test_the_core_keeps_its_budget() -> None:
    texts = [path.read_text() for path in _core()]
    lines = sum(len(text.splitlines()) for text in texts)
    code = sum(_lines_of_code(text) for text in texts)
    packages = {path.relative_to(PACKAGE).parts[0] for path in _core() if path.parent != PACKAGE}
    assert lines <= MOST_LINES, "the core may not grow: remove lines elsewhere, or add an extra"
    assert code <= MOST_CODE, "the core may not grow: remove code elsewhere, or add an extra"
    assert len(packages) <= MOST_PACKAGES


def _lines_of_code(text: str) -> int:
    """On how many lines something of the syntax tree begins, docstrings and texts below a name aside."""
    nodes = list(ast.walk(ast.parse(text)))
    documented = {
        id(node.value)
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    lines = {getattr(node, "lineno", 0) for node in nodes if id(node) not in documented}
    return len(
        lines
        - {0}
        - {node.lineno for node in nodes if isinstance(node, ast.Expr) and id(node.value) in documented}
    )


def test_no_public_class_shares_its_name() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_what_is_private_says_so() -> None:
    """Nothing else may be imported; the plugin, the command line and the extras are loaded by their names."""
    inside = {
        path.name for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert {name for name in inside if not name.startswith("_")} == {"cli", "extras", "pytest_plugin.py"}
