"""Generated mutants of one of vLLM's parser files, judged by the cases of parser regression.

A mutant is killed if a case regresses from the unchanged file according to `compare.changes`. cosmic-ray
generates the mutants. Mutants that only change annotations, docstrings or logging are left out, as are swaps
of identity and equality. mutants.yaml says why mutants survive; equivalent mutants do not count.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, groupby, takewhile
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ConfigDict, Field

from vllm_harness._environments.installer import install_into
from vllm_harness._environments.spec import Environment
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import UsageError
from vllm_harness._files.line_file import read_lines
from vllm_harness._files.locking import locked_for_making
from vllm_harness._files.paths import cache_dir
from vllm_harness._files.strict import StrictModel
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._machine.processes import killed_with_parent
from vllm_harness._machine.tasks import run_tasks
from vllm_harness._regression.cases.case import CaseSet
from vllm_harness._regression.engines.answer import CaseAnswer
from vllm_harness._regression.engines.in_process import WORKERS, lines_of, worker_family
from vllm_harness._regression.results.cells import Cell
from vllm_harness._regression.results.compare import PARSERS_ARE_MADE, CaseChange, changes
from vllm_harness._regression.run import LIMIT_S, cell_of, shares
from vllm_harness._terminal.status import quiet
from vllm_harness.extras.mutants.parsers.coverage import with_coverage

PACKAGE = "cosmic-ray==8.7.0"
REASONS = Path(__file__).with_name("mutants.yaml")
_MAKER = Path(__file__).with_name("make_mutants.py")
MUTANT_WORKERS = Path(__file__).parents[1] / "workers"
_DRIVER = MUTANT_WORKERS / "vllm_harness_mutants.py"

ParserMutantStatus = Literal["killed", "differs", "survived"]
CasePlace = tuple[int, str | None]
"""The position of a case set, and the name of its case."""


class Mutant(StrictModel):
    """A file with one change.

    Attributes:
        line: the number of the first changed line.
        statement: the first and last line of the changed statement, or of its head if it has a body; None if
            it runs on import.
        operator: cosmic-ray's name for the kind of change.
        change: the lines before and after the change.
        code: the code of the whole changed file; empty in stored results.
    """

    line: int
    statement: tuple[int, int] | None
    operator: str
    change: str
    code: str = ""

    @property
    def key(self) -> tuple[int, str, str]:
        """A key that is unique within the file."""
        return self.line, self.operator, self.change


class SurvivalReason(StrictModel):
    """The reason why no case notices some mutants.

    Attributes:
        file, changes: identify the mutants, by their file and their changes.
        equivalent: whether no client could notice the mutants.
        why: the reason, in words.
    """

    file: str
    changes: tuple[str, ...]
    equivalent: bool = False
    why: str


class SurvivalReasons(StrictModel):
    """The content of the file of reasons."""

    reasons: tuple[SurvivalReason, ...]


class MutantResult(StrictModel):
    """A mutant and its status.

    Attributes:
        mutant: the mutant.
        status: `differs` if answers differ, but no case regressed. The key in files is `fate`.
        by: the first case that led to the status.
        served: whether the mutant also ran on servers.
        reason: why the mutant was not killed, if known.
    """

    model_config = ConfigDict(populate_by_name=True)

    mutant: Mutant
    status: ParserMutantStatus = Field(alias="fate")
    by: str = ""
    served: bool = False
    reason: SurvivalReason | None = None


def load_reasons(path: Path = REASONS) -> tuple[SurvivalReason, ...]:
    """Reads the reasons. Raises pydantic's ValidationError, which names the key, if the file is malformed."""
    return SurvivalReasons.model_validate(yaml.safe_load(path.read_text())).reasons


def with_reasons(
    results: Iterable[MutantResult], file: str, reasons: Iterable[SurvivalReason]
) -> list[MutantResult]:
    """Adds the known reasons for survivors to the results of a file's mutants."""
    by_change = {
        change.strip(): reason for reason in reasons if reason.file == file for change in reason.changes
    }
    return [
        result
        if result.status == "killed"
        else result.model_copy(update={"reason": by_change.get(result.mutant.change)})
        for result in results
    ]


def read_results(path: Path) -> list[MutantResult]:
    """Reads the results of an earlier run.

    Raises:
        UsageError: the file does not exist, or its content is invalid.
    """
    hint = "give the file that --output wrote"
    if not path.exists():
        raise UsageError(f"{path} does not exist", hint=hint)
    return read_lines(path, MutantResult, what="result of a mutant", hint=hint)


def split_killed(
    mutants: Iterable[Mutant], earlier: Iterable[MutantResult]
) -> tuple[list[MutantResult], list[Mutant]]:
    """Splits mutants into the results of those that an earlier run killed, and the mutants still to run."""
    killed = {result.mutant.key: result for result in earlier if result.status == "killed"}
    every = list(mutants)
    return (
        [killed[mutant.key] for mutant in every if mutant.key in killed],
        [mutant for mutant in every if mutant.key not in killed],
    )


def score(results: Sequence[MutantResult]) -> tuple[int, int]:
    """The number of killed mutants, and the number of mutants that are not equivalent."""
    counted = [result for result in results if not (result.reason and result.reason.equivalent)]
    return sum(result.status == "killed" for result in counted), len(counted)


def make_mutants(
    environment: Environment, file: str, progress: Callable[[str], None], *, sample: int = 0, seed: int = 0
) -> list[Mutant]:
    """Generates the mutants of one of vLLM's files.

    Args:
        environment: the environment in which vLLM is installed.
        file: the path in vLLM's package, such as `tool_parsers/x.py`.
        progress: called if cosmic-ray must be installed.
        sample: the number of mutants to draw at random; 0 for all.
        seed: the random seed of the sample.

    Raises:
        UsageError: vLLM has no such file.
        InstallError: cosmic-ray cannot be installed.
    """
    path = environment.package / file if environment.package else None
    if path is None or not path.is_file():
        raise UsageError(
            f"{environment.describe()} has no file {file}", hint=f"give a file below {environment.package}"
        )
    mutants = [Mutant.model_validate_json(line) for line in _made(path, progress).splitlines()]
    if not 0 < sample < len(mutants):
        return mutants
    chosen = random.Random(seed).sample(mutants, sample)
    return sorted(chosen, key=lambda mutant: (mutant.line, mutant.operator))


def _made(path: Path, progress: Callable[[str], None]) -> bytes:
    """All mutants of a file, as JSON lines; cached, since generating them can take minutes."""
    code = hashlib.sha256(path.read_bytes() + _MAKER.read_bytes()).hexdigest()[:16]
    cached = cache_dir() / "library-mutants" / f"{PACKAGE.replace('==', '-')}-{path.stem}-{code}.jsonl"
    if cached.exists():
        return cached.read_bytes()
    folder = cache_dir() / f"{PACKAGE.replace('==', '-')}-py{platform.python_version()}"
    install_into(folder, f"--python={sys.executable}", PACKAGE, progress=progress)
    with locked_for_making(cached, progress):
        if not cached.exists():
            maker = subprocess.run(
                [*killed_with_parent(), sys.executable, str(_MAKER), str(path)],
                env={**os.environ, "PYTHONPATH": str(folder)},
                stdout=subprocess.PIPE,
                check=True,
                text=True,
            )
            with temporary_folder(cached.parent) as half:
                (half / cached.name).write_text(maker.stdout)
                (half / cached.name).rename(cached)
    return cached.read_bytes()


def module_of(file: str) -> str:
    """The module name of one of vLLM's files."""
    return "vllm." + file.removesuffix(".py").replace("/", ".")


def judge_mutants(
    environment: Environment,
    file: str,
    mutants: Sequence[Mutant],
    case_sets: Sequence[CaseSet],
    *,
    most: int = 0,
    parallel: int = 1,
    done: Callable[[MutantResult], None] = lambda _: None,
    progress: Callable[[str], None] = quiet,
) -> list[MutantResult]:
    """Judges each mutant in process with the cases that run the changed statement, until a case kills it.

    A few cases kill most mutants, so the cases run in stages, each with twice as many case sets as the stage
    before. Each mutant runs in a fork of an interpreter that has loaded vLLM.

    Args:
        environment: the environment in which vLLM is installed.
        file: the path of the file that the mutants change, relative to vLLM's package.
        mutants: the mutants to judge.
        case_sets: the cases that judge the mutants.
        most: the maximum number of cases in a stage, evenly spread over those that run the change; 0 for all.
        parallel: the number of interpreters to run at a time.
        done: called with each mutant's final result.
        progress: called if coverage.py must be installed.

    Returns:
        The results, sorted by line, operator and change.

    Raises:
        InstallError: coverage.py cannot be installed.
        InProcessError: vLLM cannot be imported, or the mutants take too long.
    """
    driver = _Driver(environment, file, most, with_coverage(environment, progress))
    results: dict[int, MutantResult] = {}
    left = list(enumerate(mutants))
    stages = stages_of(case_sets)
    for number, sets in enumerate(stages, start=1):
        is_last = number == len(stages)

        def receive(position: int, result: MutantResult, is_last: bool = is_last) -> None:
            results[position] = _combined(results.get(position), result)
            if is_last or result.status == "killed":
                done(results[position])

        judge = partial(_judge_share, driver, sets, receive)
        tasks = [partial(judge, share) for share in shares(left, parallel)]
        if errors := run_tasks(tasks, parallel):
            raise errors[0]
        left = [(position, mutant) for position, mutant in left if results[position].status != "killed"]
    return sorted(results.values(), key=lambda result: result.mutant.key)


def stages_of(case_sets: Sequence[CaseSet]) -> list[list[CaseSet]]:
    """Divides case sets into stages of one, two, four and so on, ordered by group and then by family."""
    groups = list(dict.fromkeys(cases.group for cases in case_sets))
    by_group = sorted(case_sets, key=lambda cases: groups.index(cases.group))
    bounds = takewhile(lambda bound: bound < len(by_group), ((1 << power) - 1 for power in count()))
    return [by_group[bound : 2 * bound + 1] for bound in bounds]


@dataclass(frozen=True)
class _Driver:
    """Runs the worker process that runs the mutants of a file."""

    environment: Environment
    file: str
    most: int
    environ: dict[str, str]

    def lines(
        self, mutants: Sequence[Mutant], case_sets: Sequence[CaseSet]
    ) -> Iterator[tuple[int | None, list[dict[str, Any]]]]:
        """Yields the number of each mutant with the worker's lines for it; None is the unchanged file."""
        families = [worker_family(cases.family, cases.inputs) for cases in case_sets]
        codes = [mutant.model_dump(include={"code", "statement"}) for mutant in mutants]
        module = module_of(self.file)
        document = {"families": families, "module": module, "mutants": codes, "most": self.most}
        limit_s = LIMIT_S * (1 + len(mutants))
        lines = lines_of(
            self.environment, (str(_DRIVER), str(WORKERS)), document, environ=self.environ, limit_s=limit_s
        )
        for number, group in groupby(map(json.loads, lines), key=lambda line: line["mutant"]):
            yield number, [{key: value for key, value in line.items() if key != "mutant"} for line in group]


def _judge_share(
    driver: _Driver,
    case_sets: Sequence[CaseSet],
    receive: Callable[[int, MutantResult], None],
    share: Sequence[tuple[int, Mutant]],
) -> None:
    results = _judged(driver, [mutant for _, mutant in share], case_sets)
    for (position, _), result in zip(share, results, strict=True):
        receive(position, result)


def _combined(before: MutantResult | None, now: MutantResult) -> MutantResult:
    return before if before and before.status == "differs" and now.status == "survived" else now


def _judged(
    driver: _Driver, mutants: Sequence[Mutant], case_sets: Sequence[CaseSet]
) -> Iterator[MutantResult]:
    vllm = VllmUnderTest("any", driver.environment)
    original: dict[CasePlace, list[CaseAnswer]] = {}
    before: list[Cell] = []
    for number, lines in driver.lines(mutants, case_sets):
        if number is None:
            original = _by_place(lines)
            before = _cells(vllm, case_sets, original, range(len(case_sets)))
            continue
        *answers, end = lines
        if end["error"]:
            by = f"{PARSERS_ARE_MADE}: {end['error']}"
            yield MutantResult(mutant=mutants[number], status="killed", by=by)
            continue
        differing = _by_place(answers)
        positions = {position for position, _ in differing}
        after = _cells(vllm, case_sets, {**original, **differing}, positions)
        places = [f"{case_sets[position].family.name}: {case}" for position, case in differing]
        yield _result(mutants[number], changes(before, after), places)


def _result(mutant: Mutant, changed: Sequence[CaseChange], places: Sequence[str]) -> MutantResult:
    for change in changed:
        if change.regressed:
            by = f"{change.family}, {change.group}, {change.case}"
            return MutantResult(mutant=mutant, status="killed", by=by)
    status: ParserMutantStatus = "differs" if places else "survived"
    return MutantResult(mutant=mutant, status=status, by=places[0] if places else "")


def _by_place(lines: Iterable[dict[str, Any]]) -> dict[CasePlace, list[CaseAnswer]]:
    answers: dict[CasePlace, list[CaseAnswer]] = {}
    for answer in map(CaseAnswer.model_validate, lines):
        answers.setdefault((answer.case_set, answer.case), []).append(answer)
    return answers


def _cells(
    vllm: VllmUnderTest,
    case_sets: Sequence[CaseSet],
    answers: dict[CasePlace, list[CaseAnswer]],
    positions: Iterable[int],
) -> list[Cell]:
    return [
        cell_of(
            vllm,
            case_sets[position],
            [answer for (place, _), group in answers.items() if place == position for answer in group],
        )
        for position in positions
    ]
