"""The files of vLLM's serving code, and the statements of a file that a change affects."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

SERVING = (
    *("entrypoints/openai/responses/*", "entrypoints/openai/chat_completion/*"),
    *("entrypoints/openai/parser/*", "entrypoints/openai/models/*", "entrypoints/anthropic/*"),
    *("entrypoints/generate/base/*", "entrypoints/mcp/*", "entrypoints/serve/engine/*"),
    *("entrypoints/serve/exception_handling/*", "entrypoints/serve/middleware/*"),
    *("entrypoints/serve/utils/*", "entrypoints/serve/tokenize/*", "entrypoints/serve/instrumentator/*"),
    *("entrypoints/scale_out/render/*", "entrypoints/scale_out/derender/*"),
    *("parser/abstract_parser.py", "parser/harmony.py", "parser/parser_manager.py", "parser/utils.py"),
    *("reasoning/abs_reasoning_parsers.py", "reasoning/gptoss_reasoning_parser.py"),
    *("renderers/base.py", "renderers/chat_utils.py", "renderers/hf.py", "renderers/online_renderer.py"),
    "renderers/params.py",
    *("tool_parsers/abstract_tool_parser.py", "tool_parsers/structural_tag_registry.py"),
    *("tool_parsers/utils.py", "v1/structured_output/*", "exceptions.py", "sampling_params.py"),
)
"""Patterns of the paths of vLLM's serving code below its package."""


def serving_files(package: Path) -> list[str]:
    """The files of the serving code that a vLLM has, as paths below its package."""
    every = sorted(path.relative_to(package).as_posix() for path in package.rglob("*.py"))
    return [file for file in every if any(fnmatchcase(file, pattern) for pattern in SERVING)]


def changed_statements(before: str, old: str, new: str) -> tuple[int, int] | None:
    """The first and last line, in the original file, of the statements that change.

    Only the head of a statement with a body counts. Added lines change the statements around them.

    Args:
        before: the content of the file.
        old: a text that occurs once in the file.
        new: the text that replaces `old`.

    Returns:
        None if a statement that runs on import changes.
    """
    bodies, statements = _functions(before)
    changed: list[int] = []
    for edit in _edits(before, old, new):
        inside = [line for line in edit.lines if any(line in body for body in bodies)]
        if not inside or (len(inside) < len(edit.lines) and not edit.only_adds):
            return None
        changed += inside
    spans = [_innermost(statements, line) or (line, line) for line in changed]
    return min(first for first, _ in spans), max(last for _, last in spans)


@dataclass(frozen=True)
class _Edit:
    """The lines of a file that change, or the lines around an addition."""

    lines: list[int]
    only_adds: bool


def _edits(before: str, old: str, new: str) -> Iterator[_Edit]:
    lines = before.splitlines()
    start = before.index(old)
    offset = before.count("\n", 0, start)
    prefix = before[before.rfind("\n", 0, start) + 1 : start]
    suffix = before[start + len(old) :].partition("\n")[0]
    blocks = [f"{prefix}{text}{suffix}".splitlines() for text in (old, new)]
    matcher = difflib.SequenceMatcher(None, blocks[0], blocks[1], autojunk=False)
    for tag, first, last, _, _ in matcher.get_opcodes():
        if tag != "equal":
            adds = not any(_is_code(blocks[0], number) for number in range(first, last))
            numbers = (first - 1, last) if adds else range(first, last)
            code = [offset + number + 1 for number in numbers if _is_code(lines, offset + number)]
            if code:
                yield _Edit(code, adds)


def _is_code(lines: Sequence[str], number: int) -> bool:
    text = lines[number].strip() if 0 <= number < len(lines) else ""
    return bool(text) and not text.startswith("#")


@lru_cache(maxsize=64)
def _functions(code: str) -> tuple[list[range], list[tuple[int, int]]]:
    """The lines of the bodies of all functions, and the (first, last) line of each statement in them."""
    functions = [
        node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    bodies = [range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1) for node in functions]
    nodes = {id(node): node for function in functions for part in function.body for node in ast.walk(part)}
    statements = (node for node in nodes.values() if isinstance(node, ast.stmt | ast.ExceptHandler))
    return bodies, list(map(_span, statements))


def _span(node: ast.stmt | ast.ExceptHandler) -> tuple[int, int]:
    body = getattr(node, "body", None)
    last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
    return node.lineno, last


def _innermost(statements: Sequence[tuple[int, int]], line: int) -> tuple[int, int] | None:
    """The smallest statement that contains a line; None for the line of an `else`."""
    containing = [(first, last) for first, last in statements if first <= line <= last]
    return min(containing, key=lambda span: span[1] - span[0], default=None)
