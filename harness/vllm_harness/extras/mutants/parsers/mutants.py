"""How much of a parser the cases cover: automatic mutants of one of vLLM's files, judged by the cases.

A mutant is killed where a case regresses from the file as it is, by `compare.changes`, as the release gate
has it. cosmic-ray makes the mutants; those that change only annotations, documentation or what is logged are
left out, as are comparisons by identity in place of equality. mutants.yaml has why mutants survive; those
that change nothing a client can see do not count.
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

from vllm_harness._environments.installer import install_into
from vllm_harness._environments.spec import Environment
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import UsageError
from vllm_harness._files.line_file import read_lines
from vllm_harness._files.locking import half_made, locked_for_making
from vllm_harness._files.paths import cache_dir
from vllm_harness._files.strict import StrictModel
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

Fate = Literal["killed", "differs", "survived"]
CasePlace = tuple[int, str | None]
"""The position of a case set, and the name of its case."""


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
    def key(self) -> tuple[int, str, str]:
        """Unique within its file."""
        return self.line, self.operator, self.change


class SurvivalReason(StrictModel):
    """Why no case notices these mutants.

    Attributes:
        file, changes: which.
        equivalent: whether no client could notice it.
        why: for reading.
    """

    file: str
    changes: tuple[str, ...]
    equivalent: bool = False
    why: str


class SurvivalReasons(StrictModel):
    """The file of reasons."""

    reasons: tuple[SurvivalReason, ...]


class MutantResult(StrictModel):
    """A mutant and what became of it.

    Attributes:
        mutant: which.
        fate: `killed`; `differs` where answers differ, but no case regressed.
        by: the first case that shows it.
        served: whether it was run on servers, too.
        reason: why it was not killed, if that is known.
    """

    mutant: Mutant
    fate: Fate
    by: str = ""
    served: bool = False
    reason: SurvivalReason | None = None


def load_reasons(path: Path = REASONS) -> tuple[SurvivalReason, ...]:
    """Reads the reasons; raises pydantic's ValidationError, naming the key, where the file is malformed."""
    return SurvivalReasons.model_validate(yaml.safe_load(path.read_text())).reasons


def with_reasons(
    results: Iterable[MutantResult], file: str, reasons: Iterable[SurvivalReason]
) -> list[MutantResult]:
    """The results of a file's mutants, those that survive with the reason that is known."""
    by_change = {
        change.strip(): reason for reason in reasons if reason.file == file for change in reason.changes
    }
    return [
        result
        if result.fate == "killed"
        else result.model_copy(update={"reason": by_change.get(result.mutant.change)})
        for result in results
    ]


def read_results(path: Path) -> list[MutantResult]:
    """The results that an earlier run kept in its file.

    Raises:
        UsageError: the file is not there, or holds something else.
    """
    hint = "give the file that --output wrote"
    if not path.exists():
        raise UsageError(f"{path} is not there", hint=hint)
    return read_lines(path, MutantResult, what="result of a mutant", hint=hint)


def split_killed(
    mutants: Iterable[Mutant], earlier: Iterable[MutantResult]
) -> tuple[list[MutantResult], list[Mutant]]:
    """The mutants that an earlier run killed, with its results, and those that are to be run again."""
    killed = {result.mutant.key: result for result in earlier if result.fate == "killed"}
    every = list(mutants)
    return (
        [killed[mutant.key] for mutant in every if mutant.key in killed],
        [mutant for mutant in every if mutant.key not in killed],
    )


def score(results: Sequence[MutantResult]) -> tuple[int, int]:
    """How many were killed, of how many that are not equivalent."""
    counted = [result for result in results if not (result.reason and result.reason.equivalent)]
    return sum(result.fate == "killed" for result in counted), len(counted)


def make_mutants(
    environment: Environment, file: str, progress: Callable[[str], None], *, sample: int = 0, seed: int = 0
) -> list[Mutant]:
    """The mutants of a file of vLLM's.

    Args:
        environment: whose vLLM.
        file: its place in the package, such as `tool_parsers/x.py`.
        progress: called where cosmic-ray has to be installed.
        sample: how many of them, drawn from the seed; 0: all.
        seed: of the sample.

    Raises:
        UsageError: vLLM has no such file.
        InstallError: cosmic-ray cannot be had.
    """
    path = environment.package / file if environment.package else None
    if path is None or not path.is_file():
        raise UsageError(
            f"{environment.describe()} has no file {file}", hint=f"give one below {environment.package}"
        )
    mutants = [Mutant.model_validate_json(line) for line in _made(path, progress).splitlines()]
    if not 0 < sample < len(mutants):
        return mutants
    chosen = random.Random(seed).sample(mutants, sample)
    return sorted(chosen, key=lambda mutant: (mutant.line, mutant.operator))


def _made(path: Path, progress: Callable[[str], None]) -> bytes:
    """All mutants of a file, a line each; kept in the cache, since they take minutes for a long file."""
    code = hashlib.sha256(path.read_bytes() + _MAKER.read_bytes()).hexdigest()[:16]
    kept = cache_dir() / "library-mutants" / f"{PACKAGE.replace('==', '-')}-{path.stem}-{code}.jsonl"
    if kept.exists():
        return kept.read_bytes()
    folder = cache_dir() / f"{PACKAGE.replace('==', '-')}-py{platform.python_version()}"
    install_into(folder, f"--python={sys.executable}", PACKAGE, progress=progress)
    with locked_for_making(kept, progress):
        if not kept.exists():
            maker = subprocess.run(
                [sys.executable, str(_MAKER), str(path)],
                env={**os.environ, "PYTHONPATH": str(folder)},
                stdout=subprocess.PIPE,
                check=True,
                text=True,
            )
            with half_made(kept) as half:
                (half / kept.name).write_text(maker.stdout)
                (half / kept.name).rename(kept)
    return kept.read_bytes()


def module_of(file: str) -> str:
    """The name that a file of vLLM's is imported by."""
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
    """Runs on each mutant, in process, the cases that run the statement it changes, until a case kills it.

    Most fall to a few cases, so these are tried in stages, each with twice as many sets of cases as the one
    before; each mutant runs in a fork of an interpreter that has vLLM loaded.

    Args:
        environment: whose vLLM.
        file: that the mutants change, below vLLM's package.
        mutants: which.
        case_sets: whose cases judge.
        most: cases that judge a mutant in a stage, evenly spread over those that run what it changes; 0: all.
        parallel: interpreters at a time.
        done: called with each mutant's fate.
        progress: called where coverage.py has to be installed.

    Raises:
        InstallError: coverage.py cannot be had.
        InProcessError: vLLM does not import, or takes longer than an hour a mutant.
    """
    driver = _Driver(environment, file, most, with_coverage(environment, progress))
    results: dict[int, MutantResult] = {}
    left = list(enumerate(mutants))
    stages = stages_of(case_sets)
    for number, sets in enumerate(stages, start=1):
        is_last = number == len(stages)

        def keep(position: int, result: MutantResult, is_last: bool = is_last) -> None:
            results[position] = _worse_fate(results.get(position), result)
            if is_last or result.fate == "killed":
                done(results[position])

        judge = partial(_judge_share, driver, sets, keep)
        tasks = [partial(judge, share) for share in shares(left, parallel)]
        if errors := run_tasks(tasks, parallel):
            raise errors[0]
        left = [(position, mutant) for position, mutant in left if results[position].fate != "killed"]
    return sorted(
        results.values(),
        key=lambda result: (result.mutant.line, result.mutant.operator, result.mutant.change),
    )


def stages_of(case_sets: Sequence[CaseSet]) -> list[list[CaseSet]]:
    """One set of cases, then two, four and so on; group by group, the first family first."""
    groups = list(dict.fromkeys(cases.group for cases in case_sets))
    by_group = sorted(case_sets, key=lambda cases: groups.index(cases.group))
    bounds = takewhile(lambda bound: bound < len(by_group), ((1 << power) - 1 for power in count()))
    return [by_group[bound : 2 * bound + 1] for bound in bounds]


@dataclass(frozen=True)
class _Driver:
    """What drives a file's mutants: an environment, and the variables of its interpreter."""

    environment: Environment
    file: str
    most: int
    environ: dict[str, str]

    def lines(
        self, mutants: Sequence[Mutant], case_sets: Sequence[CaseSet]
    ) -> Iterator[tuple[int | None, list[dict[str, Any]]]]:
        """What the driver writes, by mutant; of the file itself first."""
        families = [worker_family(cases.family, cases.inputs) for cases in case_sets]
        codes = [mutant.model_dump(include={"code", "statement"}) for mutant in mutants]
        document = {
            "families": families,
            "module": module_of(self.file),
            "mutants": codes,
            "most": self.most,
        }
        limit_s = LIMIT_S * (1 + len(mutants))
        lines = lines_of(
            self.environment, (str(_DRIVER), str(WORKERS)), document, environ=self.environ, limit_s=limit_s
        )
        for number, group in groupby(map(json.loads, lines), key=lambda line: line["mutant"]):
            yield number, [_without_mutant(line) for line in group]


def _without_mutant(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key != "mutant"}


def _judge_share(
    driver: _Driver,
    case_sets: Sequence[CaseSet],
    keep: Callable[[int, MutantResult], None],
    share: Sequence[tuple[int, Mutant]],
) -> None:
    results = _judged(driver, [mutant for _, mutant in share], case_sets)
    for (position, _), result in zip(share, results, strict=True):
        keep(position, result)


def _worse_fate(before: MutantResult | None, now: MutantResult) -> MutantResult:
    return before if before and before.fate == "differs" and now.fate == "survived" else now


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
            yield MutantResult(mutant=mutants[number], fate="killed", by=by)
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
            return MutantResult(mutant=mutant, fate="killed", by=by)
    fate: Fate = "differs" if places else "survived"
    return MutantResult(mutant=mutant, fate=fate, by=places[0] if places else "")


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
            [answer for (place, _), found in answers.items() if place == position for answer in found],
        )
        for position in positions
    ]
