"""`vllm-harness mutants serving`: changes vLLM's serving code, and finds the tests that notice."""

from __future__ import annotations

import sys
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
from vllm_harness._files.line_file import truncate_to_complete_lines
from vllm_harness._files.paths import state_dir
from vllm_harness._machine import interrupts
from vllm_harness._machine.shard import Needs
from vllm_harness._regression.selection import split_names
from vllm_harness._server.leases.allocation import interpreters
from vllm_harness._server.leases.expected import expected_needs
from vllm_harness._terminal.tables import one_line, show_table
from vllm_harness.cli.counting import counted
from vllm_harness.cli.executor import executor_of
from vllm_harness.cli.regression_options import console, note, notes
from vllm_harness.extras.cluster.suites.shards import SERVERS
from vllm_harness.extras.mutants.importers import Importers, importers_of
from vllm_harness.extras.mutants.judge import Judge, JudgedMutant, read_judged
from vllm_harness.extras.mutants.measure import measure, texts_of
from vllm_harness.extras.mutants.mutant import ServingMutant, applied, load_by_hand, of_library
from vllm_harness.extras.mutants.parsers.mutants import make_mutants
from vllm_harness.extras.mutants.shards import JudgingOptions
from vllm_harness.extras.mutants.suites import Suites
from vllm_harness.extras.mutants.table import MutantTally, survivors, tallies, tally
from vllm_harness.extras.review.coverage import Coverage, coverage_file, read_coverage
from vllm_harness.extras.review.serving import serving_files

MODELS = ("qwen3", "gpt-oss")


def mutants(
    files: Annotated[
        list[str] | None, typer.Argument(help="Files in vLLM, or patterns: 'entrypoints/anthropic/*'.")
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

    Each mutant runs on its own servers, on qwen3 and gpt-oss unless --model
    names others. The tests that run the changed lines judge it, until a test
    fails. The lines that each test runs are measured on this machine, even if
    a cluster judges the mutants. --output gets a line of JSON for each judged
    mutant; the same command resumes the run.
    """
    environment = resolve(vllm, create=True, progress=notes.print)
    models = split_names(",".join(model or MODELS))
    run = _Run(environment, Suites(vllm, tuple(models)), jobs or interpreters())
    coverage = run.coverage(measure_only=measure_)
    if measure_:
        return
    every = list(run.mutants(files or ["*"], set(only or ()), library, seed))
    _refuse_unknown(only or (), every)
    path = output or state_dir() / "mutants" / f"fates-{environment.vllm_version}.jsonl"
    known = _known(read_judged(path), every, again=again)
    left = [mutant for mutant in every if mutant.id not in known]
    judge = Judge(run.suites, coverage, run.importers(), most, texts_of(run.suites) if left else {})
    judge.learn(known.values())
    results = dict(known)
    truncate_to_complete_lines(path)
    interrupts.keep(path, *sys.argv[1:])
    with (
        path.open("a") as lines,
        counted("mutants", len(left)) as advance,
        executor_of(ray, jobs, path.with_suffix(""), tests=True, bundles=bundle, vllm=[vllm]) as executor,
    ):

        def done(result: JudgedMutant) -> None:
            print(result.model_dump_json(by_alias=True), file=lines, flush=True)
            results[result.id] = result
            advance()

        errors = run.judging(judge, minutes).judge_all(left, executor, done)
    total = _show([results[mutant.id] for mutant in every if mutant.id in results], every)
    console.print(f"kept: {path}")
    if errors:
        raise errors[0]
    raise typer.Exit(1 if total.score < least else 0)


@dataclass(frozen=True)
class _Run:
    """The vLLM under test, and the suites that judge its mutants."""

    environment: Environment
    suites: Suites
    parallel: int

    @property
    def package(self) -> Path:
        """The folder of vLLM's package. Raises UsageError if the environment has no such folder."""
        if self.environment.package is None:
            raise UsageError(f"{self.environment.describe()} has no package that can be changed")
        return self.environment.package

    def importers(self) -> Importers:
        """The importers of each module in vLLM."""
        cached = coverage_file(self.environment).with_name(f"importers-{self.environment.fingerprint()}.json")
        return importers_of(self.package, cached)

    def coverage(self, *, measure_only: bool) -> Coverage:
        """The lines that each test runs; measured if no lines are stored yet, or with `measure_only`."""
        stored = coverage_file(self.environment)
        coverage = read_coverage(stored)
        if measure_only or not len(coverage):
            interrupts.keep(stored, *sys.argv[1:])
            note("measuring once which lines each test runs: this takes twenty minutes on one core")
            coverage = measure(self.package, self.suites, stored, note, parallel=self.parallel)
        notes.print(f"the lines of {len(coverage)} tests are known: {stored}")
        return coverage

    def judging(self, judge: Judge, minutes: int) -> JudgingOptions:
        """How to judge mutants; no mutant is started after this number of minutes, unless it is 0."""
        vllm = VllmUnderTest(self.suites.vllm, self.environment)
        entries = map(load_models().get, self.suites.models)
        gib = max(
            expected_needs(entry, self.environment, "scripted", "python").memory_gib for entry in entries
        )
        needs = Needs(memory_gib=SERVERS * gib)
        return JudgingOptions(judge, vllm, needs, time.time() + 60.0 * minutes if minutes else None)

    def mutants(
        self, files: Sequence[str], only: set[str], library: int, seed: int
    ) -> Iterator[ServingMutant]:
        """Yields the selected mutants: reverted fixes, other mutants made by hand, then generated ones."""
        absent = []
        for by_hand in load_by_hand():
            if _matches(by_hand.file, files) and (not only or by_hand.id in only):
                mutant = applied(by_hand, self.package)
                if mutant is None:
                    absent.append(by_hand.id)
                else:
                    yield mutant
        if absent:
            notes.print(f"{len(absent)} do not fit vLLM {self.environment.vllm_version}: {', '.join(absent)}")
        for file in serving_files(self.package) if library else ():
            if _matches(file, files):
                for generated in make_mutants(self.environment, file, note, sample=library, seed=seed):
                    mutant = of_library(generated, file)
                    if not only or mutant.id in only:
                        yield mutant


def _refuse_unknown(only: Sequence[str], every: Sequence[ServingMutant]) -> None:
    ids = {mutant.id for mutant in every}
    if missing := [id_ for id_ in only if id_ not in ids]:
        raise UsageError(
            f"no mutant of these files is called {missing[0]}",
            hint="choose an id from by_hand/*.yaml, or add --library for mutants generated by cosmic-ray",
        )
    if not every:
        raise UsageError("these files have no mutants", hint="add --library 20, or give other files")


def _matches(file: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(file, pattern) for pattern in patterns)


def _known(
    earlier: Iterable[JudgedMutant], every: Sequence[ServingMutant], *, again: bool
) -> dict[str, JudgedMutant]:
    """The results of earlier runs that still hold for these mutants, by id."""
    digests = {mutant.id: mutant.digest for mutant in every}
    results = {result.id: result for result in earlier if digests.get(result.id) == result.digest}
    wanted = {"killed"} if again else {"killed", "noticed", "survived", "unreached"}
    return {id_: result for id_, result in results.items() if result.status in wanted}


def _show(results: Sequence[JudgedMutant], every: Sequence[ServingMutant]) -> MutantTally:
    """Prints the survivors and a table of tallies; returns the tally of all mutants."""
    by_id = {mutant.id: mutant for mutant in every}
    for result in survivors(results, by_id):
        _show_survivor(result, by_id[result.id])
    rows = [_row(name, counts) for name, counts in tallies(results, by_id).items()]
    by_kind = tallies(results, by_id, by=lambda result: result.kind)
    rows += [_row(name, counts) for name, counts in by_kind.items()]
    total = tally(results, by_id)
    headings = ("", "killed", "noticed", "survived", "equivalent", "not judged", "score")
    show_table(console, headings, [*rows, _row("all", total)], headings[1:])
    hours = sum(result.seconds for result in results) / 3600
    console.print(f"{len(results)} of {len(every)} mutants judged in {hours:.1f} server hours")
    return total


def _row(name: str, counts: MutantTally) -> tuple[str, ...]:
    numbers = (counts.killed, counts.noticed, counts.survived, counts.equivalent, counts.not_judged)
    return name, *map(str, numbers), f"{counts.score:.1f} %"


def _show_survivor(result: JudgedMutant, mutant: ServingMutant) -> None:
    how = {
        "survived": f"survived {result.ran} of {result.of} tests",
        "noticed": f"noticed only by {result.by}, which should show a known defect",
        "unreached": "no test runs it",
        "not judged": f"not judged: {one_line(result.why, 200)}",
    }[result.status]
    why = f"; {mutant.survives}" if mutant.survives else ""
    console.print(f"{result.id} ({mutant.kind}): {how}{why}")
    console.print(mutant.what or mutant.change, style="dim")
