"""`vllm-harness mutants serving`: changes of vLLM's serving code, and the tests that notice them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import typer

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._environments.resolve import resolve
from vllm_harness._environments.spec import Environment
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import UsageError
from vllm_harness._files.line_file import end_whole
from vllm_harness._files.paths import state_dir
from vllm_harness._machine.shard import Needs
from vllm_harness._regression.selection import split_names
from vllm_harness._server.leases.allocation import expected_needs, interpreters
from vllm_harness._terminal.tables import one_line, show_table
from vllm_harness.cli.counting import counted
from vllm_harness.cli.executor import executor_of
from vllm_harness.cli.interrupted import kept_at
from vllm_harness.cli.regression_options import console, note, notes
from vllm_harness.extras.cluster.suites.shards import SERVERS
from vllm_harness.extras.mutants.importers import Importers, importers_of
from vllm_harness.extras.mutants.judge import Judge, MutantFate, read_fates
from vllm_harness.extras.mutants.measure import measure, texts_of
from vllm_harness.extras.mutants.mutant import ServingMutant, applied, load_by_hand, of_library
from vllm_harness.extras.mutants.parsers.mutants import make_mutants
from vllm_harness.extras.mutants.shards import JudgingOptions
from vllm_harness.extras.mutants.suites import Suites
from vllm_harness.extras.mutants.table import MutantTally, survivors, tallies, tally
from vllm_harness.extras.review.coverage import Coverage, coverage_file, read_coverage
from vllm_harness.extras.review.serving import serving_files

MODELS = ("qwen3", "gpt-oss")
GOES_ON = "run the same command again to resume"


def mutants(
    files: Annotated[
        list[str] | None, typer.Argument(help="Files of vLLM's, also by patterns: 'entrypoints/anthropic/*'.")
    ] = None,
    vllm: str = "0.32.0",
    model: list[str] | None = None,
    only: list[str] | None = None,
    library: int = 0,
    seed: int = 0,
    most: int = 300,
    minutes: int = 0,
    jobs: int | None = None,
    output: Path | None = None,
    again: bool = False,
    measure_: bool = False,
    least: float = 0,
    ray: str = "",
    bundle: list[Path] | None = None,
) -> None:
    """Change vLLM's serving code in one place at a time, and list the changes that no test notices.

    The suites judge each mutant on servers of its own, on qwen3 and gpt-oss
    unless --model names others: the tests that run the changed lines, until
    one fails. The lines that each test runs are measured on this machine, even
    if the mutants are judged on a cluster. --output has a line of JSON for
    each judged mutant; the same command resumes the run.
    """
    environment = resolve(vllm, create=True, progress=notes.print)
    models = split_names(",".join(model or MODELS))
    run = _Run(environment, Suites(vllm, tuple(models)), jobs or interpreters())
    coverage = run.coverage(measure_only=measure_)
    if measure_:
        return
    every = list(run.made(files or ["*"], set(only or ()), library, seed))
    _refuse_unknown(only or (), every)
    path = output or state_dir() / "mutants" / f"fates-{environment.vllm_version}.jsonl"
    fates = _known(read_fates(path), every, again=again)
    left = [mutant for mutant in every if mutant.id not in fates]
    judge = Judge(run.suites, coverage, run.importers(), most, texts_of(run.suites) if left else {})
    judge.learn(fates.values())
    end_whole(path)
    with (
        kept_at(path, GOES_ON),
        path.open("a") as lines,
        counted("mutants", len(left)) as advance,
        executor_of(ray, jobs, path.with_suffix(""), tests=True, bundles=bundle, vllm=[vllm]) as executor,
    ):

        def done(fate: MutantFate) -> None:
            print(fate.model_dump_json(), file=lines, flush=True)
            fates[fate.id] = fate
            advance()

        errors = run.judging(judge, minutes).all(left, executor, done)
    of_all = _show([fates[mutant.id] for mutant in every if mutant.id in fates], every)
    console.print(f"kept: {path}")
    if errors:
        raise errors[0]
    raise typer.Exit(1 if of_all.score < least else 0)


@dataclass(frozen=True)
class _Run:
    """A vLLM, and the suites that judge its mutants."""

    environment: Environment
    suites: Suites
    parallel: int

    @property
    def package(self) -> Path:
        """The folder of vLLM's package."""
        if self.environment.package is None:
            raise UsageError(f"{self.environment.describe()} has no package that can be changed")
        return self.environment.package

    def importers(self) -> Importers:
        """Which modules import which."""
        kept = coverage_file(self.environment).with_name(f"importers-{self.environment.fingerprint()}.json")
        return importers_of(self.package, kept)

    def coverage(self, *, measure_only: bool) -> Coverage:
        """What the tests run; measured where nothing is kept yet, or nothing else is wanted."""
        kept = coverage_file(self.environment)
        found = read_coverage(kept)
        if measure_only or not len(found):
            note("the lines that each test runs are measured once: twenty minutes of one core")
            with kept_at(kept, GOES_ON):
                found = measure(self.package, self.suites, kept, note, parallel=self.parallel)
        notes.print(f"the lines of {len(found)} tests are known: {kept}")
        return found

    def judging(self, judge: Judge, minutes: int) -> JudgingOptions:
        """How mutants are judged, within so many minutes; 0: as long as it takes."""
        vllm = VllmUnderTest(self.suites.vllm, self.environment)
        entries = map(load_models().get, self.suites.models)
        gib = max(
            expected_needs(entry, self.environment, "scripted", "python").memory_gib for entry in entries
        )
        needs = Needs(memory_gib=SERVERS * gib)
        return JudgingOptions(judge, vllm, needs, time.time() + 60.0 * minutes if minutes else None)

    def made(self, files: Sequence[str], only: set[str], library: int, seed: int) -> Iterator[ServingMutant]:
        """The mutants that were asked for: reverted fixes, others made by hand, those of the library."""
        absent = []
        for mutant in load_by_hand():
            if _is_meant(mutant.file, files) and (not only or mutant.id in only):
                found = applied(mutant, self.package)
                if found is None:
                    absent.append(mutant.id)
                else:
                    yield found
        if absent:
            notes.print(f"{len(absent)} do not fit vLLM {self.environment.vllm_version}: {', '.join(absent)}")
        for file in serving_files(self.package) if library else ():
            if _is_meant(file, files):
                made = make_mutants(self.environment, file, note, sample=library, seed=seed)
                yield from (each for each in (of_library(mutant, file) for mutant in made) if _in(each, only))


def _refuse_unknown(only: Sequence[str], every: Sequence[ServingMutant]) -> None:
    made = {mutant.id for mutant in every}
    if missing := [id_ for id_ in only if id_ not in made]:
        raise UsageError(
            f"no mutant of these files is called {missing[0]}",
            hint="the files by_hand/*.yaml have those made by hand; those of the library need --library",
        )
    if not every:
        raise UsageError("these files have no mutants", hint="add --library 20, or give other files")


def _is_meant(file: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(file, pattern) for pattern in patterns)


def _in(mutant: ServingMutant, only: set[str]) -> bool:
    return not only or mutant.id in only


def _known(
    earlier: Iterable[MutantFate], every: Sequence[ServingMutant], *, again: bool
) -> dict[str, MutantFate]:
    """The fates that earlier runs found of these very mutants."""
    digests = {mutant.id: mutant.digest for mutant in every}
    fates = {fate.id: fate for fate in earlier if digests.get(fate.id) == fate.digest}
    wanted = {"killed"} if again else {"killed", "noticed", "survived", "unreached"}
    return {id_: fate for id_, fate in fates.items() if fate.fate in wanted}


def _show(fates: Sequence[MutantFate], every: Sequence[ServingMutant]) -> MutantTally:
    """Prints those that live on, and the tables; gives the whole."""
    by_id = {mutant.id: mutant for mutant in every}
    for fate in survivors(fates, by_id):
        _show_survivor(fate, by_id[fate.id])
    rows = [_row(name, each) for name, each in tallies(fates, by_id).items()]
    kinds = [_row(name, each) for name, each in tallies(fates, by_id, by=lambda fate: fate.kind).items()]
    of_all = tally(fates, by_id)
    headings = ("", "killed", "noticed", "survived", "equivalent", "not judged", "score")
    show_table(console, headings, [*rows, *kinds, _row("all", of_all)], headings[1:])
    seconds = sum(fate.seconds for fate in fates)
    console.print(f"{len(fates)} of {len(every)} mutants judged in {seconds / 3600:.1f} hours of one server")
    return of_all


def _row(name: str, each: MutantTally) -> tuple[str, ...]:
    numbers = (each.killed, each.noticed, each.survived, each.equivalent, each.not_judged)
    return name, *map(str, numbers), f"{each.score:.1f} %"


def _show_survivor(fate: MutantFate, mutant: ServingMutant) -> None:
    how = {
        "survived": f"survived {fate.ran} of {fate.of} tests",
        "noticed": f"noticed by {fate.by} alone, which is to show a known defect",
        "unreached": "no test runs it",
        "not judged": f"not judged: {one_line(fate.why, 200)}",
    }[fate.fate]
    why = f"; {mutant.survives}" if mutant.survives else ""
    console.print(f"{fate.id} ({mutant.kind}): {how}{why}")
    console.print(mutant.what or mutant.change, style="dim")
