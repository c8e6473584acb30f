"""vLLM's serving code: its files, and the statements of one that a change touches."""

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
"""vLLM's serving code, by patterns of paths below its package."""


def serving_files(package: Path) -> list[str]:
    """The files of the serving code that a vLLM has, below its package."""
    every = sorted(path.relative_to(package).as_posix() for path in package.rglob("*.py"))
    return [file for file in every if any(fnmatchcase(file, pattern) for pattern in SERVING)]


def changed_statements(before: str, old: str, new: str) -> tuple[int, int] | None:
    """First and last line, in the file as it was, of the statements that change; None: they run on import.

    Of a statement with a body its head counts alone. What is put in changes its neighbours.

    Args:
        before: the file.
        old, new: the text that it has once, and the text in its place.
    """
    bodies, statements = _functions(before)
    changed: list[int] = []
    for place in _changes(before, old, new):
        inside = [line for line in place.lines if any(line in body for body in bodies)]
        if not inside or (len(inside) < len(place.lines) and not place.only_adds):
            return None
        changed += inside
    spans = [_innermost(statements, line) or (line, line) for line in changed]
    return min(first for first, _ in spans), max(last for _, last in spans)


@dataclass(frozen=True)
class _Change:
    """The lines of a file that change; of what is only added, the lines around it."""

    lines: list[int]
    only_adds: bool


def _changes(before: str, old: str, new: str) -> Iterator[_Change]:
    lines = before.splitlines()
    start = before.index(old)
    offset = before.count("\n", 0, start)
    begun = before[before.rfind("\n", 0, start) + 1 : start]
    ended = before[start + len(old) :].partition("\n")[0]
    blocks = [f"{begun}{text}{ended}".splitlines() for text in (old, new)]
    matcher = difflib.SequenceMatcher(None, blocks[0], blocks[1], autojunk=False)
    for tag, first, last, _, _ in matcher.get_opcodes():
        if tag != "equal":
            adds = not any(_is_code(blocks[0], number) for number in range(first, last))
            numbers = (first - 1, last) if adds else range(first, last)
            code = [offset + number + 1 for number in numbers if _is_code(lines, offset + number)]
            if code:
                yield _Change(code, adds)


def _is_code(lines: Sequence[str], number: int) -> bool:
    text = lines[number].strip() if 0 <= number < len(lines) else ""
    return bool(text) and not text.startswith("#")


@lru_cache(maxsize=64)
def _functions(code: str) -> tuple[list[range], list[tuple[int, int]]]:
    """The lines of the bodies of all functions, and first and last line of the statements in them."""
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, _FUNCTION)]
    bodies = [range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1) for node in nodes]
    inside = {id(each): each for node in nodes for part in node.body for each in ast.walk(part)}
    return bodies, [_span(each) for each in inside.values() if isinstance(each, ast.stmt | ast.ExceptHandler)]


_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def _span(node: ast.stmt | ast.ExceptHandler) -> tuple[int, int]:
    body = getattr(node, "body", None)
    last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
    return node.lineno, last


def _innermost(statements: Sequence[tuple[int, int]], line: int) -> tuple[int, int] | None:
    """The smallest around a line; none is around an `else`."""
    around = [(first, last) for first, last in statements if first <= line <= last]
    return min(around, key=lambda span: span[1] - span[0], default=None)
