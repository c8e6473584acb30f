"""How much of a parser the cases hold to: automatic mutants of one of vLLM's files, judged by the matrix.

A mutant is killed where a case comes out worse than from the file as it is, by `compare.changes`: what the
release gate would say of it. cosmic-ray makes the mutants; those that change only annotations, documentation
or what is logged are left out, as are comparisons by identity in place of equality.
"""

from __future__ import annotations

import json
import os
import platform
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from harness.environments.installer import package_folder
from harness.environments.spec import Environment
from harness.errors import UsageError
from harness.matrix.compare import MADE, Change, changes
from harness.matrix.results import Cell
from harness.matrix.run import Asked, cell_of
from harness.scripted.in_process import InProcessError, Parsed, in_process_job

PACKAGE = "cosmic-ray==8.7.0"
_MAKER = Path(__file__).with_name("mutants_of.py")
_DRIVER = Path(__file__).parents[1] / "scripted" / "inserver" / "vllm_harness_mutants.py"

Fate = Literal["killed", "differs", "survived"]


class Mutant(BaseModel):
    """A file with one thing changed.

    Attributes:
        line: where.
        operator: cosmic-ray's name for the change.
        change: the lines before and after it.
        code: the whole file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    line: int
    operator: str
    change: str
    code: str


@dataclass(frozen=True)
class Judged:
    """A mutant and what became of it.

    Attributes:
        mutant: which.
        fate: `killed`; `differs` where cases came out otherwise, but none was right before and is wrong now.
        by: the first case that tells.
    """

    mutant: Mutant
    fate: Fate
    by: str = ""


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


def judged(
    environment: Environment,
    file: str,
    mutants: Sequence[Mutant],
    asked: Sequence[Asked],
    *,
    parallel: int = 1,
    done: Callable[[Judged], None] = lambda _: None,
) -> list[Judged]:
    """Asks the cases of each mutant in process, each in a fork of an interpreter that has vLLM loaded.

    Raises:
        InProcessError: vLLM does not import.
    """
    shares = [mutants[start::parallel] for start in range(parallel)]

    def judge(share: Sequence[Mutant]) -> list[Judged]:
        found = []
        for one in _judged(environment, file, share, asked):
            done(one)
            found.append(one)
        return found

    with ThreadPoolExecutor(parallel) as pool:
        found = [one for some in pool.map(judge, filter(None, shares)) for one in some]
    return sorted(found, key=lambda one: (one.mutant.line, one.mutant.operator, one.mutant.change))


def _judged(
    environment: Environment, file: str, mutants: Sequence[Mutant], asked: Sequence[Asked]
) -> Iterator[Judged]:
    original: dict[str, list[Parsed]] = {}
    before: list[Cell] = []
    for number, lines in _driven(environment, file, mutants, asked):
        if number is None:
            for line in lines:
                one = Parsed.model_validate(line)
                original.setdefault(_place(one), []).append(one)
            before = _cells(asked, original, range(len(asked)))
            continue
        *answers, end = lines
        if end["error"]:
            yield Judged(mutants[number], "killed", f"{MADE}: {end['error']}")
            continue
        other = [Parsed.model_validate(line) for line in answers]
        places = dict.fromkeys(map(_place, other))
        anew = {place: [one for one in other if _place(one) == place] for place in places}
        changed = changes(before, _cells(asked, {**original, **anew}, {one.job for one in other}))
        yield _fate(mutants[number], changed, places)


def _fate(mutant: Mutant, changed: Sequence[Change], places: Iterable[str]) -> Judged:
    for change in changed:
        if change.worse:
            return Judged(mutant, "killed", f"{change.family}, {change.group}, {change.case}")
    first = next(iter(places), None)
    return Judged(mutant, "survived") if first is None else Judged(mutant, "differs", first)


def _place(one: Parsed) -> str:
    return f"{one.job}: {one.case}"


def _cells(asked: Sequence[Asked], answers: dict[str, list[Parsed]], jobs: Iterable[int]) -> list[Cell]:
    of = {job: [one for some in answers.values() for one in some if one.job == job] for job in jobs}
    return [cell_of(asked[job], parsed, environment="", described="") for job, parsed in of.items()]


def _driven(
    environment: Environment, file: str, mutants: Sequence[Mutant], asked: Sequence[Asked]
) -> Iterator[tuple[int | None, list[dict[str, Any]]]]:
    """The driver's lines, by mutant."""
    families = [
        in_process_job(one.family, [question.case for question in one.questions.asked]) for one in asked
    ]
    module = "vllm." + file.removesuffix(".py").replace("/", ".")
    codes = [mutant.code for mutant in mutants]
    with tempfile.TemporaryFile("w+") as errors, tempfile.TemporaryFile("w+") as given:
        json.dump({"families": families, "module": module, "mutants": codes}, given)
        given.seek(0)
        running = subprocess.Popen(
            [environment.python, str(_DRIVER)],
            cwd="/",
            env=environment.environ(),
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            assert running.stdout is not None
            for number, some in groupby(map(json.loads, running.stdout), key=lambda line: line["mutant"]):
                yield number, [_without_mutant(line) for line in some]
            running.wait()
        finally:
            running.kill()
            running.wait()
        if running.returncode:
            errors.seek(0)
            said = "\n".join(errors.read().strip().splitlines()[-5:])
            raise InProcessError(f"the parsers of {environment.describe()} do not run in process:\n{said}")


def _without_mutant(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key != "mutant"}
