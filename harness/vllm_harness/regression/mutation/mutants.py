"""How much of a parser the cases hold to: automatic mutants of one of vLLM's files, judged by the matrix.

A mutant is killed where a case comes out worse than from the file as it is, by `compare.changes`: what the
release gate would say of it. cosmic-ray makes the mutants; those that change only annotations, documentation
or what is logged are left out, as are comparisons by identity in place of equality. mutants.yaml has why some
live on; those that change nothing a client can see do not count.
"""

from __future__ import annotations

import json
import os
import platform
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import yaml

from vllm_harness.environments.installer import package_folder
from vllm_harness.environments.spec import Environment
from vllm_harness.errors import UsageError
from vllm_harness.files.strict import StrictModel
from vllm_harness.regression.engines.in_process import WORKERS, Parsed, in_process_job, lines_of
from vllm_harness.regression.results.compare import MADE, Change, changes
from vllm_harness.regression.results.results import Cell
from vllm_harness.regression.run import LIMIT_S, Asked, cell_of, shares

PACKAGE = "cosmic-ray==8.7.0"
REASONS = Path(__file__).with_name("mutants.yaml")
_MAKER = Path(__file__).with_name("mutants_of.py")
_DRIVER = WORKERS / "vllm_harness_mutants.py"

Fate = Literal["killed", "differs", "survived"]
Place = tuple[int, str | None]
"""Which of what was asked, and its case."""


class Mutant(StrictModel):
    """A file with one thing changed.

    Attributes:
        line: where.
        statement: its first and last line, where it runs in a function; a head alone where it has a body.
        operator: cosmic-ray's name for the change.
        change: the lines before and after it.
        code: the whole file; empty in what is kept.
    """

    line: int
    statement: tuple[int, int] | None
    operator: str
    change: str
    code: str = ""

    @property
    def told(self) -> tuple[int, str, str]:
        """What tells it from the file's others."""
        return self.line, self.operator, self.change


class Reason(StrictModel):
    """Why no case notices some mutants.

    Attributes:
        file, changes: which.
        equivalent: nobody could notice it.
        why: in words.
    """

    file: str
    changes: tuple[str, ...]
    equivalent: bool = False
    why: str


class Reasons(StrictModel):
    """The file of reasons."""

    reasons: tuple[Reason, ...]


class Judged(StrictModel):
    """A mutant and what became of it.

    Attributes:
        mutant: which.
        fate: `killed`; `differs` where cases came out otherwise, but none was right before and is wrong now.
        by: the first case that tells.
        served: whether servers were asked, too.
        reason: why it was not killed, if that is known.
    """

    mutant: Mutant
    fate: Fate
    by: str = ""
    served: bool = False
    reason: Reason | None = None


def load_reasons(path: Path = REASONS) -> tuple[Reason, ...]:
    """Reads the reasons; raises pydantic's ValidationError, naming the key, where the file is malformed."""
    return Reasons.model_validate(yaml.safe_load(path.read_text())).reasons


def reasoned(found: Iterable[Judged], file: str, reasons: Iterable[Reason]) -> list[Judged]:
    """Gives those of a file that were not killed their reasons."""
    of = {change.strip(): reason for reason in reasons if reason.file == file for change in reason.changes}
    return [
        one if one.fate == "killed" else one.model_copy(update={"reason": of.get(one.mutant.change)})
        for one in found
    ]


def kept(path: Path) -> list[Judged]:
    """What became of mutants, as an earlier run has it in its file.

    Raises:
        UsageError: the file is not there, or is none of these.
    """
    try:
        return [Judged.model_validate_json(line) for line in path.read_text().splitlines()]
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path} has no mutants of an earlier run: {error}", hint="give what --keep wrote"
        ) from error


def parted(mutants: Iterable[Mutant], before: Iterable[Judged]) -> tuple[list[Judged], list[Mutant]]:
    """Those that an earlier run killed, as it has them, and those that are to be asked again."""
    dead = {one.mutant.told: one for one in before if one.fate == "killed"}
    every = list(mutants)
    return [dead[one.told] for one in every if one.told in dead], [
        one for one in every if one.told not in dead
    ]


def score(found: Sequence[Judged]) -> tuple[int, int]:
    """How many were killed, of how many that are not equivalent."""
    counted = [one for one in found if not (one.reason and one.reason.equivalent)]
    return sum(one.fate == "killed" for one in counted), len(counted)


def mutants_of(
    environment: Environment, file: str, progress: Callable[[str], None], *, sample: int = 0, seed: int = 0
) -> list[Mutant]:
    """The mutants of a file of vLLM's, by its place in the package, such as `tool_parsers/x.py`.

    Args:
        sample: how many of them, drawn from the seed; 0: all.

    Raises:
        UsageError: vLLM has no such file.
        InstallError: cosmic-ray cannot be had.
    """
    path = environment.package / file if environment.package else None
    if path is None or not path.is_file():
        raise UsageError(
            f"{environment.describe()} has no file {file}", hint=f"give one below {environment.package}"
        )
    folder = package_folder(PACKAGE, sys.executable, platform.python_version(), progress)
    told = subprocess.run(
        [sys.executable, str(_MAKER), str(path)],
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    found = [Mutant.model_validate_json(line) for line in told.stdout.splitlines()]
    if not 0 < sample < len(found):
        return found
    return sorted(random.Random(seed).sample(found, sample), key=lambda one: (one.line, one.operator))


def module_of(file: str) -> str:
    """The name that a file of vLLM's is imported by."""
    return "vllm." + file.removesuffix(".py").replace("/", ".")


def judged(
    environment: Environment,
    file: str,
    mutants: Sequence[Mutant],
    asked: Sequence[Asked],
    *,
    parallel: int = 1,
    done: Callable[[Judged], None] = lambda _: None,
) -> list[Judged]:
    """Asks each mutant, in process, the cases that run the statement it changes, until one kills it.

    A group of cases is asked at a time; each mutant runs in a fork of an interpreter that has vLLM loaded.

    Raises:
        InProcessError: vLLM does not import, or takes longer than an hour a mutant.
    """
    groups = [[one for one in asked if one.group == group] for group in {one.group: None for one in asked}]
    fates: dict[int, Judged] = {}
    left = list(enumerate(mutants))

    def note(last: bool, number: int, one: Judged) -> None:
        fates[number] = _worse(fates.get(number), one)
        if last or one.fate == "killed":
            done(fates[number])

    for group in groups:
        judge = partial(_judge, environment, file, group, partial(note, group is groups[-1]))
        with ThreadPoolExecutor(parallel) as pool:
            list(pool.map(judge, shares(left, parallel)))
        left = [(number, mutant) for number, mutant in left if fates[number].fate != "killed"]
    return sorted(fates.values(), key=lambda one: (one.mutant.line, one.mutant.operator, one.mutant.change))


def _judge(
    environment: Environment,
    file: str,
    asked: Sequence[Asked],
    note: Callable[[int, Judged], None],
    share: Sequence[tuple[int, Mutant]],
) -> None:
    found = _judged(environment, file, [mutant for _, mutant in share], asked)
    for (number, _), one in zip(share, found, strict=True):
        note(number, one)


def _worse(before: Judged | None, now: Judged) -> Judged:
    return before if before and before.fate == "differs" and now.fate == "survived" else now


def _judged(
    environment: Environment, file: str, mutants: Sequence[Mutant], asked: Sequence[Asked]
) -> Iterator[Judged]:
    original: dict[Place, list[Parsed]] = {}
    before: list[Cell] = []
    for number, lines in _driven(environment, file, mutants, asked):
        if number is None:
            original = _by_place(lines)
            before = _cells(asked, original, range(len(asked)))
            continue
        *answers, end = lines
        if end["error"]:
            yield Judged(mutant=mutants[number], fate="killed", by=f"{MADE}: {end['error']}")
            continue
        anew = _by_place(answers)
        changed = changes(before, _cells(asked, {**original, **anew}, {job for job, _ in anew}))
        yield _fate(mutants[number], changed, [f"{asked[job].family.name}: {case}" for job, case in anew])


def _fate(mutant: Mutant, changed: Sequence[Change], places: Sequence[str]) -> Judged:
    for change in changed:
        if change.worse:
            by = f"{change.family}, {change.group}, {change.case}"
            return Judged(mutant=mutant, fate="killed", by=by)
    return Judged(mutant=mutant, fate="differs" if places else "survived", by=places[0] if places else "")


def _by_place(lines: Iterable[dict[str, Any]]) -> dict[Place, list[Parsed]]:
    found: dict[Place, list[Parsed]] = {}
    for one in map(Parsed.model_validate, lines):
        found.setdefault((one.job, one.case), []).append(one)
    return found


def _cells(asked: Sequence[Asked], answers: dict[Place, list[Parsed]], jobs: Iterable[int]) -> list[Cell]:
    of = {job: [one for some in answers.values() for one in some if one.job == job] for job in jobs}
    return [cell_of(asked[job], parsed, environment="", described="") for job, parsed in of.items()]


def _driven(
    environment: Environment, file: str, mutants: Sequence[Mutant], asked: Sequence[Asked]
) -> Iterator[tuple[int | None, list[dict[str, Any]]]]:
    """The driver's lines, by mutant."""
    families = [
        in_process_job(one.family, [question.case for question in one.questions.asked]) for one in asked
    ]
    put = [mutant.model_dump(include={"code", "statement"}) for mutant in mutants]
    given = {"families": families, "module": module_of(file), "mutants": put}
    lines = lines_of(environment, (str(_DRIVER),), given, limit_s=LIMIT_S * (1 + len(mutants)))
    for number, some in groupby(map(json.loads, lines), key=lambda line: line["mutant"]):
        yield number, [_without_mutant(line) for line in some]


def _without_mutant(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key != "mutant"}
