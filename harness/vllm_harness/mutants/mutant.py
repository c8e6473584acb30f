"""Mutants of vLLM's serving code: made by hand, as by_hand/*.yaml has them, and by the mutation library."""

from __future__ import annotations

import ast
import difflib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import ValidationError, model_validator

from vllm_harness.errors import UsageError
from vllm_harness.files.located_yaml import read_yaml
from vllm_harness.files.strict import StrictModel
from vllm_harness.regression.mutation.mutants import Mutant

BY_HAND = Path(__file__).with_name("by_hand")
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

Kind = Literal["reverted", "by hand", "library"]


class HandMutant(StrictModel):
    """A change made by hand, as it stands in its file.

    Attributes:
        id: unique among all.
        file: of vLLM's, below its package.
        old, new: the text that is replaced, which the file has once, and the text in its place.
        what: what a client gets to see of it.
        fixed_in: the release that brought the fix which this takes back; none: it reverts nothing.
        upstream: the issue or pull request of that fix, where it was found, such as `vllm#46940`.
        equivalent: why no client can notice it.
        survives: why no test notices it, though a client could.
        caught_by: the id of the test that must kill it, whatever others do.
    """

    id: str
    file: str
    old: str
    new: str
    what: str
    fixed_in: str | None = None
    upstream: str | None = None
    equivalent: str | None = None
    survives: str | None = None
    caught_by: str | None = None

    @property
    def lives_on(self) -> bool:
        """Whether it is known why no test kills it; judging it takes the time of all its tests."""
        return bool(self.equivalent or self.survives)

    @model_validator(mode="after")
    def _is_consistent(self) -> HandMutant:
        if self.old == self.new:
            raise ValueError("old and new are the same")
        if self.upstream and not self.fixed_in:
            raise ValueError("upstream needs fixed_in")
        if self.equivalent and self.survives:
            raise ValueError("it is either equivalent or survives")
        if self.caught_by and (self.equivalent or self.survives):
            raise ValueError("caught_by is of one that is killed")
        return self


class HandMutants(StrictModel):
    """A file of them."""

    mutants: tuple[HandMutant, ...]


@dataclass(frozen=True)
class ServingMutant:
    """A file of vLLM's with one thing changed, whoever made it.

    Attributes:
        id: unique among those of its vLLM.
        file: below the package.
        kind: `reverted`: by hand, and takes back a fix.
        code: the whole file.
        change: the lines before and after it.
        what: what it does, of one made by hand.
        span: first and last line of the statements that it changes, where these run in a function.
        equivalent, survives: why it is not killed, where that is known.
        caught_by: the id of the test that is to kill it, where one is named.
    """

    id: str
    file: str
    kind: Kind
    code: str
    change: str
    span: tuple[int, int] | None
    what: str = ""
    equivalent: str | None = None
    survives: str | None = None
    caught_by: str | None = None

    @property
    def digest(self) -> str:
        """Of the changed file: a result is kept for this text."""
        return hashlib.sha256(self.code.encode()).hexdigest()[:16]


def load_by_hand(folder: Path = BY_HAND) -> list[HandMutant]:
    """All that are made by hand: those that take back fixes first, those that are known to survive last.

    Raises:
        UsageError: a file is malformed, or two mutants have one id; it names file and line.
    """
    found: dict[str, HandMutant] = {}
    for path in sorted(folder.glob("*.yaml")):
        document = read_yaml(path)
        try:
            mutants = HandMutants.model_validate(document.data).mutants
        except ValidationError as error:
            problems = document.problems(error, lambda _: HandMutant.model_fields)
            raise UsageError(f"{path} is no file of mutants:\n{problems}") from error
        for mutant in mutants:
            if mutant.id in found:
                raise UsageError(f"{path}: the id {mutant.id} is taken", hint="give it another one")
            found[mutant.id] = mutant
    return sorted(found.values(), key=lambda mutant: (mutant.lives_on, mutant.fixed_in is None))


def applied(mutant: HandMutant, package: Path) -> ServingMutant | None:
    """The mutant of a vLLM; None where its file does not have the old text, and have it once.

    Raises:
        UsageError: the changed file is no Python.
    """
    path = package / mutant.file
    before = path.read_text() if path.is_file() else ""
    after = changed_text(mutant, before)
    if after is None:
        return None
    return ServingMutant(
        id=mutant.id,
        file=mutant.file,
        kind="reverted" if mutant.fixed_in else "by hand",
        code=after,
        change="\n".join(_difference(mutant.old, mutant.new)),
        span=changed_statements(before, mutant.old, mutant.new),
        what=mutant.what,
        equivalent=mutant.equivalent,
        survives=mutant.survives,
        caught_by=mutant.caught_by,
    )


def changed_text(mutant: HandMutant, before: str) -> str | None:
    """A file's text with the mutant in it; None where it does not have the old text, and have it once.

    Raises:
        UsageError: the changed file is no Python.
    """
    if before.count(mutant.old) != 1:
        return None
    after = _replaced(before, mutant.old, mutant.new)
    try:
        ast.parse(after)
    except SyntaxError as error:
        raise UsageError(f"the mutant {mutant.id} leaves no Python behind: {error}") from error
    return after


def _replaced(before: str, old: str, new: str) -> str:
    """The file with the other text; where that is shorter, blank lines follow: others keep their numbers."""
    begun, ended = before.split(old)
    line, newline, rest = ended.partition("\n")
    missing = max(0, old.count("\n") - new.count("\n"))
    return f"{begun}{new}{line}{newline}" + "\n" * missing + rest


def of_library(mutant: Mutant, file: str) -> ServingMutant:
    """A mutant that the library has made."""
    digest = hashlib.sha256(mutant.change.encode()).hexdigest()[:6]
    return ServingMutant(
        id=f"{file}:{mutant.line} {mutant.operator} {digest}",
        file=file,
        kind="library",
        code=mutant.code,
        change=mutant.change,
        span=mutant.statement,
    )


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


def _difference(old: str, new: str) -> Iterator[str]:
    for text in difflib.ndiff(old.splitlines(), new.splitlines()):
        if text[:2] in ("- ", "+ ") and text[2:].strip():
            yield f"{text[0]} {text[2:].strip()}"
