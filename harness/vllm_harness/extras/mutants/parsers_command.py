"""`vllm-harness mutants parsers`: changes one of vLLM's parsers, and lists changes that no case notices."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from vllm_harness._environments.resolve import resolve
from vllm_harness._environments.spec import Environment
from vllm_harness._files.paths import state_dir
from vllm_harness._machine import interrupts
from vllm_harness._regression.cases.case import CaseSet
from vllm_harness._regression.engines.plan import Engine
from vllm_harness._regression.selection import Selection, select_families, select_groups
from vllm_harness._server.leases.allocation import interpreters
from vllm_harness._terminal.tables import show_table
from vllm_harness.cli.counting import counted
from vllm_harness.cli.regression_options import console, note, notes
from vllm_harness.extras.mutants.parsers.coverage import measure
from vllm_harness.extras.mutants.parsers.mutants import (
    Mutant,
    MutantResult,
    judge_mutants,
    load_reasons,
    make_mutants,
    read_results,
    score,
    split_killed,
    with_reasons,
)
from vllm_harness.extras.mutants.parsers.mutants_over_http import judge_over_http, sample_survivors


@dataclass(frozen=True)
class _Judging:
    """The environment and the cases that judge the mutants of a file."""

    environment: Environment
    file: str
    parsers: str
    groups: str
    parallel: int
    most: int

    def case_sets(self, engine: Engine) -> list[CaseSet]:
        families = tuple(select_families(self.parsers, ""))
        selection = Selection(families, select_groups(self.groups), engine)
        return [cases for cases in selection.case_sets() if cases.cases]


def mutants(
    file: Annotated[str, typer.Argument(help="A file in vLLM: tool_parsers/hermes_tool_parser.py.")],
    parsers: str,
    vllm: str = "0.32.0",
    cases: str = "",
    sample: int = 0,
    seed: int = 0,
    most: int = 0,
    jobs: int | None = None,
    least: float = 0,
    output: Path | None = None,
    earlier: Path | None = None,
    http: int = 0,
) -> None:
    """Change one of vLLM's files in every way cosmic-ray knows, and list the changes that no case notices.

    The cases of the families or parsers that --parsers names judge each mutant.
    --output gets a line of JSON for each mutant.
    """
    environment = resolve(vllm, create=True, progress=notes.print)
    judging = _Judging(environment, file, parsers, cases, jobs or interpreters(), most)
    made = make_mutants(environment, file, note, sample=sample, seed=seed)
    killed, left = split_killed(made, read_results(earlier) if earlier else [])
    if killed:
        notes.print(f"{len(killed)} of {len(made)} mutants were killed by the earlier run")
    path = output or state_dir() / "mutants" / f"{file.replace('/', '.').removesuffix('.py')}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    interrupts.keep(path, *sys.argv[1:], f"--earlier={path}")
    with path.open("w") as lines:

        def write(result: MutantResult) -> None:
            document = result.model_dump_json(by_alias=True, exclude={"mutant": {"code"}})
            print(document, file=lines, flush=True)

        for result in killed:
            write(result)
        judged = _judge_in_process(judging, left, write)
        results = with_reasons([*killed, *judged], file, load_reasons())
        served = _judge_over_http(judging, sample_survivors(results, http, seed), write)
    by_key = {result.mutant.key: result for result in served}
    results = [by_key.get(result.mutant.key, result) for result in results]
    share = _show_results(file, results, served)
    console.print(f"kept: {path}")
    raise typer.Exit(1 if share < least else 0)


def _judge_in_process(
    judging: _Judging, left: list[Mutant], write: Callable[[MutantResult], None]
) -> list[MutantResult]:
    with counted("mutants", len(left)) as advance:

        def done(result: MutantResult) -> None:
            write(result)
            advance()

        case_sets = judging.case_sets("in-process")
        return judge_mutants(
            judging.environment,
            judging.file,
            left,
            case_sets,
            most=judging.most,
            parallel=judging.parallel,
            done=done,
            progress=note,
        )


def _judge_over_http(
    judging: _Judging, survivors: list[MutantResult], write: Callable[[MutantResult], None]
) -> list[MutantResult]:
    if not survivors:
        return []
    with counted("mutants over HTTP", len(survivors)) as advance:
        served = judge_over_http(
            judging.environment,
            judging.file,
            survivors,
            judging.case_sets("http"),
            parallel=judging.parallel,
            done=lambda _: advance(),
        )
    for result in served:
        write(result)
    return served


def _show_results(file: str, results: list[MutantResult], served: list[MutantResult]) -> float:
    """Prints the survivors and the score; returns the percentage killed."""
    for result in results:
        if result.status != "killed":
            _show_survivor(result)
    killed, counted_mutants = score(results)
    share = 100 * killed / counted_mutants if counted_mutants else 100.0
    equivalent = len(results) - counted_mutants
    suffix = f", {equivalent} equivalent" if equivalent else ""
    console.print(f"{file}: {killed} of {counted_mutants} mutants killed, {share:.1f} %{suffix}")
    if served:
        noticed = sum(result.status == "killed" for result in served)
        console.print(f"over HTTP: {noticed} of {len(served)} mutants that ran on servers were killed")
    return share


def _show_survivor(result: MutantResult) -> None:
    noticed = f"noticed by {result.by}, but no regression" if result.by else "not noticed"
    where = ", nor by servers" if result.served else ""
    reason = result.reason
    why = f"; {'equivalent: ' if reason.equivalent else ''}{reason.why}" if reason else ""
    console.print(f"line {result.mutant.line}, {result.mutant.operator}: {noticed}{where}{why}")
    console.print(result.mutant.change, style="dim")


def show_coverage(environment: Environment, case_sets: Sequence[CaseSet], *, parallel: int) -> None:
    """Measures and prints which lines of vLLM's parsers the cases run, and why other lines do not run."""
    files = measure(environment, case_sets, note, parallel=parallel)
    rows = []
    for file in files:
        branches = "-" if file.branches is None else f"{file.branches:.0f} %"
        families = file.families[:3] + (("...",) if len(file.families) > 3 else ())
        shares = (f"{file.lines:.0f} %", f"{file.explained:.0f} %", branches, str(file.statements))
        rows.append((file.name, *shares, ", ".join(families), file.missing))
    headings = ("file", "lines", "or reason", "branches", "of", "run by", "did not run, without a reason")
    show_table(console, headings, rows, headings[1:5])
    for reason in dict.fromkeys(reason for file in files for reason in file.reasons):
        console.print(f"{sum(file.reasons.get(reason, 0) for file in files)} lines: {reason}")
    statements = sum(file.statements for file in files)
    covered = sum(file.statements * file.lines for file in files) / statements
    console.print(f"{covered:.1f} % of {statements} lines")
    at_90 = sum(file.lines >= 90 for file in files)
    explained = sum(file.explained >= 90 for file in files)
    console.print(
        f"{at_90} of {len(files)} files at 90 % or more, {explained} with the lines that have a reason"
    )
