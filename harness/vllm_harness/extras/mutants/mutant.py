"""Mutants of vLLM's serving code: made by hand, as by_hand/*.yaml has them, and by the mutation library."""

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
        for mutant in (
            read_yaml(path).validated(HandMutants, keys_at=lambda _: HandMutant.model_fields).mutants
        ):
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


def _difference(old: str, new: str) -> Iterator[str]:
    for text in difflib.ndiff(old.splitlines(), new.splitlines()):
        if text[:2] in ("- ", "+ ") and text[2:].strip():
            yield f"{text[0]} {text[2:].strip()}"
