"""Mutants of vLLM's serving code: those in by_hand/*.yaml, and those that the mutation library generates."""

from __future__ import annotations

import ast
import difflib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import model_validator

from vllm_harness._errors import UsageError
from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.strict import StrictModel
from vllm_harness.extras.mutants.parsers.mutants import Mutant
from vllm_harness.extras.review.serving import changed_statements

BY_HAND = Path(__file__).with_name("by_hand")
Kind = Literal["reverted", "by hand", "library"]


class HandMutant(StrictModel):
    """A mutant made by hand, an item of a file in `by_hand`.

    Attributes:
        id: the mutant's id, which is unique among all mutants made by hand.
        file: the path of the changed file, relative to vLLM's package.
        old, new: the code to replace, which the file must contain exactly once, and its replacement.
        what: the effect that a client sees.
        fixed_in: the release with the fix that this mutant reverts; None if it reverts no fix.
        upstream: the issue or pull request of that fix, if known, such as `vllm#46940`.
        equivalent: why no client can notice the mutant.
        survives: why no test notices the mutant, though a client could.
        caught_by: the id of the test that must kill the mutant, whatever other tests do.
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
    def known_survivor(self) -> bool:
        """Whether the file says why no test kills it; judging such a mutant means running all its tests."""
        return bool(self.equivalent or self.survives)

    @model_validator(mode="after")
    def _is_consistent(self) -> HandMutant:
        if self.old == self.new:
            raise ValueError("old and new are the same")
        if self.upstream and not self.fixed_in:
            raise ValueError("upstream needs fixed_in")
        if self.equivalent and self.survives:
            raise ValueError("give equivalent or survives, not both")
        if self.caught_by and (self.equivalent or self.survives):
            raise ValueError("caught_by cannot be combined with equivalent or survives")
        return self


class HandMutants(StrictModel):
    """The content of a file of mutants made by hand."""

    mutants: tuple[HandMutant, ...]


@dataclass(frozen=True)
class ServingMutant:
    """A file of vLLM with one change, made by hand or by the library.

    Attributes:
        id: the mutant's id, which is unique among the mutants of one vLLM version.
        file: the path of the file, relative to vLLM's package.
        kind: `reverted` if the mutant was made by hand and reverts a fix.
        code: the code of the whole changed file.
        change: the lines before and after the change.
        what: the effect that a client sees, if the mutant was made by hand.
        span: the first and last line of the changed statements; None if they run on import.
        equivalent, survives: why the mutant is not killed, if known.
        caught_by: the id of the test that must kill the mutant, if a test is named.
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
        """A hash of the changed file; a stored result is valid only for a mutant with the same hash."""
        return hashlib.sha256(self.code.encode()).hexdigest()[:16]


def load_by_hand(folder: Path = BY_HAND) -> list[HandMutant]:
    """Reads all mutants made by hand: reverted fixes first, known survivors last.

    Raises:
        UsageError: a file is malformed (the message gives the file and line), or two mutants share an id.
    """
    by_id: dict[str, HandMutant] = {}
    for path in sorted(folder.glob("*.yaml")):
        for mutant in (
            read_yaml(path).validated(HandMutants, keys_at=lambda _: HandMutant.model_fields).mutants
        ):
            if mutant.id in by_id:
                raise UsageError(f"{path}: the id {mutant.id} is taken", hint="choose another id")
            by_id[mutant.id] = mutant
    return sorted(by_id.values(), key=lambda mutant: (mutant.known_survivor, mutant.fixed_in is None))


def applied(mutant: HandMutant, package: Path) -> ServingMutant | None:
    """Applies a mutant to an installed vLLM; returns None unless the file contains `old` exactly once."""
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
    """The text of a file after applying the mutant; None unless it contains `mutant.old` exactly once.

    Raises:
        UsageError: the changed file is not valid Python.
    """
    if before.count(mutant.old) != 1:
        return None
    after = _replaced(before, mutant.old, mutant.new)
    try:
        ast.parse(after)
    except SyntaxError as error:
        raise UsageError(f"the mutant {mutant.id} does not leave valid Python: {error}") from error
    return after


def _replaced(before: str, old: str, new: str) -> str:
    """Replaces old code with new code, and adds blank lines so that later lines keep their numbers."""
    head, tail = before.split(old)
    line, newline, rest = tail.partition("\n")
    missing = max(0, old.count("\n") - new.count("\n"))
    return f"{head}{new}{line}{newline}" + "\n" * missing + rest


def of_library(mutant: Mutant, file: str) -> ServingMutant:
    """The serving mutant for a mutant that the mutation library generated from a file."""
    digest = hashlib.sha256(mutant.change.encode()).hexdigest()[:6]
    return ServingMutant(
        id=f"{file}:{mutant.line} {mutant.operator} {digest}",
        file=file,
        kind="library",
        code=mutant.code,
        change=mutant.change,
        span=mutant.statement,
    )


def _difference(old: str, new: str) -> Iterator[str]:
    for text in difflib.ndiff(old.splitlines(), new.splitlines()):
        if text[:2] in ("- ", "+ ") and text[2:].strip():
            yield f"{text[0]} {text[2:].strip()}"
