"""Why lines of vLLM's parsers run in no case: unreached.yaml tells by what a line is, and where it stands."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal

import yaml

from vllm_harness.files.strict import StrictModel

FILE = Path(__file__).with_name("unreached.yaml")
Shape = Literal["raise", "handler", "log"]


class Why(StrictModel):
    """Why some lines do not run.

    Attributes:
        why: in words.
        shapes: part of a statement that raises, of a handler of exceptions, of a call of a logger; none: any.
        functions, files: where, by shell patterns; none: anywhere.
        branches: what an `if` around them asks, by shell patterns of its source; none: anything.
    """

    why: str
    shapes: tuple[Shape, ...] = ()
    functions: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()

    def holds(self, file: str, function: str, shapes: set[Shape], asked: set[str]) -> bool:
        """Whether it is the reason for a line of this function, that runs where so much holds."""
        return (
            not self.branches or any(fnmatchcase(one, branch) for one in asked for branch in self.branches)
        ) and (
            (not self.shapes or bool(shapes & set(self.shapes)))
            and (not self.functions or any(fnmatchcase(function, one) for one in self.functions))
            and (not self.files or any(fnmatchcase(file, one) for one in self.files))
        )


class Unreached(StrictModel):
    """The whole file; the first reason that holds counts."""

    reasons: tuple[Why, ...]


@cache
def load_unreached(path: Path = FILE) -> tuple[Why, ...]:
    """Reads the reasons; raises pydantic's ValidationError, naming the key, where the file is malformed."""
    return Unreached.model_validate(yaml.safe_load(path.read_text())).reasons


def reasons(file: str, source: str, lines: Sequence[int], known: Sequence[Why]) -> dict[int, str]:
    """The lines that have a reason, and which.

    Args:
        file: its place in the package, such as `parser/qwen3.py`.
        source: what stands in it.
        lines: those that did not run.
    """
    tree = ast.parse(source)
    shaped: dict[int, set[Shape]] = {}
    for line, shape in _shapes(tree):
        shaped.setdefault(line, set()).add(shape)
    asked: dict[int, set[str]] = {}
    for line, test in _branches(tree):
        asked.setdefault(line, set()).add(test)
    functions = sorted(_functions(tree), key=lambda one: one[0].start)
    found = {}
    for line in lines:
        function = next((name for span, name in reversed(functions) if line in span), "")
        told = file, function, shaped.get(line, set()), asked.get(line, set())
        why = next((one.why for one in known if one.holds(*told)), None)
        if why is not None:
            found[line] = why
    return found


def _shapes(tree: ast.Module) -> Iterator[tuple[int, Shape]]:
    for node in ast.walk(tree):
        shape: Shape | None = None
        if isinstance(node, ast.Raise):
            shape = "raise"
        elif isinstance(node, ast.ExceptHandler):
            shape = "handler"
        elif isinstance(node, ast.Expr) and ast.unparse(node).startswith("logger."):
            shape = "log"
        if shape is not None and isinstance(node, ast.stmt | ast.ExceptHandler):
            yield from ((line, shape) for line in _span(node))


def _branches(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The lines of what is done where an `if` holds, and what it asks."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If):
            test = ast.unparse(node.test)
            yield from ((line, test) for one in node.body for line in _span(one))


def _functions(tree: ast.Module) -> Iterator[tuple[range, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield _span(node), node.name


def _span(node: ast.stmt | ast.ExceptHandler) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)
