"""The reasons in unreached.yaml why no case runs some lines of vLLM's parsers."""

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
    """The reason why some lines do not run.

    Attributes:
        why: the reason, in words.
        shapes: what the lines must belong to: a raise statement, an exception handler, or a call of a logger;
            if empty, anything.
        functions, files: shell patterns that the function and the file must match; if empty, any.
        branches: shell patterns that the condition of an `if` around the lines must match; if empty, any.
    """

    why: str
    shapes: tuple[Shape, ...] = ()
    functions: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()

    def holds(self, file: str, function: str, shapes: set[Shape], conditions: set[str]) -> bool:
        """Whether this reason applies to a line with this file, function, shapes and `if` conditions."""
        return (
            not self.branches
            or any(fnmatchcase(condition, branch) for condition in conditions for branch in self.branches)
        ) and (
            (not self.shapes or bool(shapes & set(self.shapes)))
            and (not self.functions or any(fnmatchcase(function, pattern) for pattern in self.functions))
            and (not self.files or any(fnmatchcase(file, pattern) for pattern in self.files))
        )


class Unreached(StrictModel):
    """The content of unreached.yaml; for each line, the first reason that applies counts."""

    reasons: tuple[UnreachedReason, ...]


@cache
def load_unreached(path: Path = FILE) -> tuple[UnreachedReason, ...]:
    """Reads the reasons. Raises pydantic's ValidationError, which names the key, if the file is malformed."""
    return Unreached.model_validate(yaml.safe_load(path.read_text())).reasons


def reasons(file: str, source: str, lines: Sequence[int], known: Sequence[UnreachedReason]) -> dict[int, str]:
    """Line -> the reason why it did not run, for all lines with a known reason.

    Args:
        file: the path in vLLM's package, such as `parser/qwen3.py`.
        source: the text of the file.
        lines: the lines that did not run.
        known: the reasons; the first that applies counts.
    """
    tree = ast.parse(source)
    shaped: dict[int, set[Shape]] = {}
    for line, shape in _shapes(tree):
        shaped.setdefault(line, set()).add(shape)
    conditions: dict[int, set[str]] = {}
    for line, condition in _branches(tree):
        conditions.setdefault(line, set()).add(condition)
    functions = sorted(_functions(tree), key=lambda function: function[0].start)
    by_line = {}
    for line in lines:
        function = next((name for span, name in reversed(functions) if line in span), "")
        place = file, function, shaped.get(line, set()), conditions.get(line, set())
        why = next((reason.why for reason in known if reason.holds(*place)), None)
        if why is not None:
            by_line[line] = why
    return by_line


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
    """Yields each line in the body of an `if` statement, with the statement's condition."""
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
