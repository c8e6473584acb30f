"""Prints the mutants of a Python file, one JSON object per line. Needs an interpreter with cosmic-ray.

usage: python make_mutants.py FILE
"""

import ast
import difflib
import json
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator, operator_names

EQUIVALENT = {"Is_Eq", "IsNot_NotEq", "Eq_Is", "NotEq_IsNot"}
"""Swaps of identity and equality, which have the same result for None, interned strings and small numbers."""
WITH_ARGUMENTS = {"VariableReplacer", "VariableInserter"}
LOGGERS = {"logger", "logging", "warnings"}


class _Bare(ast.NodeTransformer):
    """Removes code that does not affect results: annotations, docstrings and calls of loggers."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.annotation = ast.Constant(None)
        self.generic_visit(node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        value = node.value
        if isinstance(value, ast.Constant):
            return None
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            of = value.func.value
            if isinstance(of, ast.Name) and of.id in LOGGERS:
                return None
        self.generic_visit(node)
        return node


def _decisive(code: str) -> str | None:
    try:
        return ast.dump(_Bare().visit(ast.parse(code)))
    except SyntaxError:
        return None


def _change(before: str, after: str) -> tuple[int, str]:
    """The number of the first changed line, and the changed lines."""
    line, lines = 0, []
    for text in difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""):
        if text.startswith("@@"):
            line = line or int(text.split()[1][1:].partition(",")[0])
        elif text[:1] in "+-" and text[:3] not in ("+++", "---"):
            lines.append(f"{text[0]} {text[1:].strip()}")
    return line, "\n".join(lines)


def _statements(tree: ast.Module) -> list[tuple[int, int]]:
    """The first and last line of every statement in functions; for a statement with a body, of its head."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {id(node): node for function in functions for part in function.body for node in ast.walk(part)}
    return [_span(node) for node in inside.values() if isinstance(node, ast.stmt | ast.ExceptHandler)]


def _innermost(statements: list[tuple[int, int]], line: int) -> tuple[int, int] | None:
    """The smallest statement that contains a line; None if the line runs on import."""
    around = [(first, last) for first, last in statements if first <= line <= last]
    return min(around, key=lambda span: span[1] - span[0], default=None)


def _span(node: ast.stmt | ast.ExceptHandler) -> tuple[int, int]:
    body = getattr(node, "body", None)
    last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
    return node.lineno, last


def _mutated(code: str, operator: Operator) -> Iterator[str]:
    for occurrence in count():
        try:
            after = mutate_code(code, operator, occurrence)
        except AttributeError:  # cosmic-ray cannot replace an exception whose name has a dot
            continue
        if after is None:
            return
        yield after


def main() -> None:
    """Prints every mutant that may behave differently from the file and from earlier mutants."""
    before = Path(sys.argv[1]).read_text()
    statements = _statements(ast.parse(before))
    seen = {_decisive(before), None}
    for name in sorted(operator_names()):
        kind = name.rpartition("/")[2]
        if kind in WITH_ARGUMENTS or any(kind.endswith(f"_{pair}") for pair in EQUIVALENT):
            continue
        for after in _mutated(before, get_operator(name)()):
            decisive = _decisive(after)
            if decisive not in seen:
                seen.add(decisive)
                line, change = _change(before, after)
                place = {"line": line, "statement": _innermost(statements, line)}
                print(json.dumps({**place, "operator": kind, "change": change, "code": after}))


if __name__ == "__main__":
    main()
