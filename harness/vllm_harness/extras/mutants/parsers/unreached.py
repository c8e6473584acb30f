"""Why lines of vLLM's parsers run in no case: unreached.yaml has the reasons, by what a line is and where."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal

import yaml

from vllm_harness._files.strict import StrictModel

FILE = Path(__file__).with_name("unreached.yaml")
Shape = Literal["raise", "handler", "log"]


class UnreachedReason(StrictModel):
    """Why lines do not run.

    Attributes:
        why: for reading.
        shapes: part of a statement that raises, of a handler of exceptions, of a call of a logger; none: any.
        functions, files: where, by shell patterns; none: anywhere.
        branches: the condition of an `if` around them, by shell patterns of its source; none: any.
    """

    why: str
    shapes: tuple[Shape, ...] = ()
    functions: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()

    def holds(self, file: str, function: str, shapes: set[Shape], conditions: set[str]) -> bool:
        """Whether it is the reason for a line of this function, under these conditions."""
        return (
            not self.branches
            or any(fnmatchcase(condition, branch) for condition in conditions for branch in self.branches)
        ) and (
            (not self.shapes or bool(shapes & set(self.shapes)))
            and (not self.functions or any(fnmatchcase(function, pattern) for pattern in self.functions))
            and (not self.files or any(fnmatchcase(file, pattern) for pattern in self.files))
        )


class Unreached(StrictModel):
    """The whole file; the first reason that holds counts."""

    reasons: tuple[UnreachedReason, ...]


@cache
def load_unreached(path: Path = FILE) -> tuple[UnreachedReason, ...]:
    """Reads the reasons; raises pydantic's ValidationError, naming the key, where the file is malformed."""
    return Unreached.model_validate(yaml.safe_load(path.read_text())).reasons


def reasons(file: str, source: str, lines: Sequence[int], known: Sequence[UnreachedReason]) -> dict[int, str]:
    """The lines that have a reason, and which.

    Args:
        file: its place in the package, such as `parser/qwen3.py`.
        source: what stands in it.
        lines: those that did not run.
        known: the reasons, the first that holds counts.
    """
    tree = ast.parse(source)
    shaped: dict[int, set[Shape]] = {}
    for line, shape in _shapes(tree):
        shaped.setdefault(line, set()).add(shape)
    conditions: dict[int, set[str]] = {}
    for line, condition in _branches(tree):
        conditions.setdefault(line, set()).add(condition)
    functions = sorted(_functions(tree), key=lambda function: function[0].start)
    found = {}
    for line in lines:
        function = next((name for span, name in reversed(functions) if line in span), "")
        place = file, function, shaped.get(line, set()), conditions.get(line, set())
        why = next((reason.why for reason in known if reason.holds(*place)), None)
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
    """The lines of the body of each `if`, and its condition."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If):
            condition = ast.unparse(node.test)
            yield from ((line, condition) for statement in node.body for line in _span(statement))


def _functions(tree: ast.Module) -> Iterator[tuple[range, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield _span(node), node.name


def _span(node: ast.stmt | ast.ExceptHandler) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)
