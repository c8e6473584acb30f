"""`vllm-harness matrix`: every parser over versions of vLLM, and the differences between two runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, get_args

import typer

from vllm_harness.cli.counting import counted
from vllm_harness.cli.regression_table import show_cells
from vllm_harness.configuration.model_entries import Frontend, load_registry
from vllm_harness.environments.resolve import resolve
from vllm_harness.environments.spec import Environment
from vllm_harness.errors import HarnessError, UsageError
from vllm_harness.files.paths import state_dir
from vllm_harness.regression.cases.meanings import FILE as MEANINGS
from vllm_harness.regression.cases.meanings import load_meanings
from vllm_harness.regression.cases.properties import BUDGET
from vllm_harness.regression.cases.questions import BY_DEFAULT, GROUPS, Group, Search
from vllm_harness.regression.cases.search import Found, search
from vllm_harness.regression.mutation.coverage import FileCoverage, measure
from vllm_harness.regression.mutation.mutants import (
    Judged,
    judged,
    kept,
    load_reasons,
    mutants_of,
    parted,
    reasoned,
    score,
)
from vllm_harness.regression.mutation.mutants_over_http import drawn, judged_over_http
from vllm_harness.regression.results.compare import (
    Change,
    against,
    baseline_of,
    changes,
    disagreements,
    read_baseline,
    write_baseline,
)
from vllm_harness.regression.results.findings import Explained, Finding, explain, load_findings
from vllm_harness.regression.results.results import Cell, Engine, Run
from vllm_harness.regression.run import Asked, Subject, jobs, work
from vllm_harness.scripted.families import Family, families_of_model, load_families, on_real_tokenizer
from vllm_harness.server.leases.allocation import interpreters
from vllm_harness.terminal.tables import plain_console, show_table

app = typer.Typer(help="Run every parser over versions of vLLM, without a GPU; compare runs.")
JOBS = Annotated[
    int | None,
    typer.Option(
        "--jobs", help="Interpreters or servers at a time; default: two, one on a small machine.", min=1
    ),
]
console, notes = plain_console(), plain_console(stderr=True)


@app.callback(invoke_without_command=True)
def matrix(
    context: typer.Context,
    parsers: Annotated[
        str, typer.Option(help="Families or vLLM's parser names, by commas; default all.")
    ] = "",
    models: Annotated[
        str, typer.Option(help="Entries of models.yaml, by commas: the families with their parsers.")
    ] = "",
    vllm: Annotated[
        str, typer.Option(help="Environments, by commas: 0.32.0,0.33.0@0.32.0,tree:DIR.")
    ] = "0.32.0",
    frontend: Annotated[
        str, typer.Option(help="vLLM's HTTP front ends, by commas: python,rust (needs --engine http).")
    ] = "python",
    cases: Annotated[
        str,
        typer.Option(
            help=f"Groups of cases, by commas: {', '.join(GROUPS)}; default {', '.join(BY_DEFAULT)}."
        ),
    ] = "",
    only: Annotated[
        list[str] | None, typer.Option(help="Name of a case: no others; may be given again.")
    ] = None,
    budget: Annotated[
        int, typer.Option(help="Meanings to make up for a family (properties).", min=1)
    ] = BUDGET,
    seed: Annotated[int, typer.Option(help="What they are made up from.")] = 0,
    meanings: Annotated[
        Path, typer.Option(help="What is meant: a file like this one, such as properties keep.")
    ] = MEANINGS,
    tokenizers: Annotated[
        str, typer.Option(help="synthetic, and real for the families whose own can be had, by commas.")
    ] = "synthetic",
    engine: Annotated[
        Engine, typer.Option(help="The parser objects in their interpreter, or servers over HTTP.")
    ] = "in-process",
    jobs_at_a_time: JOBS = None,
    run: Annotated[str, typer.Option(help="Name of the run; one that was interrupted goes on.")] = "",
    coverage: Annotated[
        bool, typer.Option("--coverage", help="Measure which lines of vLLM's parsers the cases run.")
    ] = False,
    baseline: Annotated[
        Path | None, typer.Option(help="What is known to be wrong: only what is worse fails.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option("--write-baseline", help="Write what is wrong as a baseline.")
    ] = None,
) -> None:
    """Parse what a model of each family means with vLLM's own parsers; exit 1 where it does not come back."""
    if context.invoked_subcommand:
        return
    parallel = jobs_at_a_time or interpreters()
    known = read_baseline(baseline) if baseline else None
    folder = Run.named(run or time.strftime("%Y%m%d-%H%M%S"))
    subjects = _subjects(vllm, frontend, engine)
    if write and len(subjects) != 1:
        raise UsageError("--write-baseline takes one environment", hint="give one to --vllm")
    if known and known.engine != engine:
        raise UsageError(f"the baseline {baseline} is of the engine {known.engine}")
    families, groups = _on_tokenizers(families_asked(parsers, models, engine), tokenizers), _groups(cases)
    meant, how = load_meanings(meanings), Search(budget, seed)
    asked = [
        Asked.of(family, group, meant, engine, only or (), how) for group in groups for family in families
    ]
    if coverage:
        some = [one for one in asked if one.questions.asked]
        _show_coverage(measure(subjects[0].environment, some, _quietly, parallel=parallel))
        return
    errors = _work(folder, subjects, asked, engine, parallel)
    specs, names = {subject.name for subject in subjects}, {family.name for family in families}
    cells = [
        cell
        for cell in (folder.cells() if folder.folder.exists() else ())
        if cell.environment in specs
        and cell.family in names
        and cell.group in groups
        and cell.engine == engine
    ]
    show_cells(console, cells, known)
    found = []
    if "properties" in groups and engine == "in-process" and known is None:
        found = _search(folder, subjects, families, how, parallel)
    console.print(f"run: {folder.folder}")
    if write:
        write_baseline(baseline_of(subjects[0].name, cells), write)
        console.print(f"baseline: {write}")
    if errors:
        raise errors[0]
    if known is not None:
        if unknown := sum(not known.covers_cell(cell) for cell in cells):
            console.print(f"{unknown} cells are not in the baseline, and were not compared")
        raise typer.Exit(_tell(against(known, cells), f"the baseline of vLLM {known.vllm}"))
    if not write and (found or any(cell.refused or cell.count("fail") for cell in cells)):
        raise typer.Exit(1)


@app.command()
def diff(
    before: Annotated[str, typer.Argument(help="A run, by name or folder, perhaps with @ENVIRONMENT.")],
    after: Annotated[str, typer.Argument(help="Another one.")],
) -> None:
    """List what came out worse and what came out better; exit 1 where anything came out worse."""
    raise typer.Exit(_tell(changes(_cells(before), _cells(after)), before))


@app.command()
def engines(run: Annotated[str, typer.Argument(help="A run with cells of both engines.")]) -> None:
    """List where servers over HTTP answer otherwise than the parsers in process; exit 1 where any does."""
    compared, found = disagreements(Run.named(run).cells())
    rows = []
    for one in found:
        wrong = (", ".join(kinds) or "right" for kinds in (one.in_process, one.http))
        rows.append((one.case, one.family, one.environment, one.way, *wrong))
    if found:
        show_table(console, ("case", "family", "environment", "asked", "in process", "over HTTP"), rows)
    console.print(f"{compared} answers compared, {len(found)} differ")
    raise typer.Exit(1 if found else 0)


@app.command()
def findings(
    run: Annotated[str, typer.Argument(help="A run, by name or folder.")],
    every: Annotated[
        bool,
        typer.Option(
            "--all", help="List the findings that do not show too, and every failure without a finding."
        ),
    ] = False,
    commands: Annotated[
        bool,
        typer.Option(
            "--commands", help="Print the families of each finding, and the command that shows it again."
        ),
    ] = False,
) -> None:
    """Sort a run's failures by root cause (findings.yaml); exit 1 where one has no finding."""
    known = load_findings()
    told = explain(known, Run.named(run).cells())
    places = list(dict.fromkeys(place for counts in told.seen.values() for place in counts))
    listed = [one for one in known if every or one.name in told.seen]
    counts = ["\n".join(place) for place in places]
    rows = [_finding_row(one, told, places) for one in listed]
    headings = (*counts, "families", "verdict", "finding (reference)")
    show_table(console, headings, rows, [*counts, "families"], whole=len(places) > 3)
    if commands:
        for one in listed:
            console.print(f"{one.name} ({one.verdict}; {', '.join(one.versions)}; {', '.join(one.families)})")
            console.print(one.command, style="dim")
    true = sum(one.verdict == "true" for one in known)
    console.print(
        f"{len(told.seen)} of {len(known)} findings show ({true} of all are true, the others arguable); "
        f"{len(told.unexplained)} failures are without a finding"
    )
    for environment, engine, failure in told.unexplained[: None if every else 20]:
        place = f"{environment}, {engine}: {failure.family}, {failure.group}, {failure.case}, {failure.way}"
        console.print(f"{place}: {failure.wrong}")
    if more := 0 if every else max(0, len(told.unexplained) - 20):
        console.print(f"... and {more} more; --all lists them")
    raise typer.Exit(1 if told.unexplained else 0)


def _finding_row(one: Finding, told: Explained, places: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    counts = told.seen.get(one.name, {})
    numbers = (str(counts.get(place, "-")) for place in places)
    return (*numbers, str(len(one.families)), one.verdict, f"{one.name} ({one.reference})")


@app.command()
def mutants(
    file: Annotated[str, typer.Argument(help="A file of vLLM's: tool_parsers/hermes_tool_parser.py.")],
    parsers: Annotated[str, typer.Option(help="Families or parser names whose cases judge it, by commas.")],
    vllm: Annotated[str, typer.Option(help="The environment.")] = "0.32.0",
    cases: Annotated[str, typer.Option(help="Groups of cases, by commas.")] = ",".join(BY_DEFAULT),
    sample: Annotated[int, typer.Option(help="How many mutants, drawn by the seed; 0: all.", min=0)] = 0,
    seed: Annotated[int, typer.Option(help="What they are drawn by.")] = 0,
    jobs_at_a_time: JOBS = None,
    least: Annotated[float, typer.Option(help="Percentage killed below which this fails.")] = 0,
    keep: Annotated[
        Path | None, typer.Option(help="Where each mutant's fate is written, one JSON object a line.")
    ] = None,
    again: Annotated[
        Path | None, typer.Option(help="What an earlier run kept: those that it killed are not asked again.")
    ] = None,
    http: Annotated[
        int, typer.Option(help="How many of those that live, drawn by the seed, servers are asked.", min=0)
    ] = 0,
) -> None:
    """Change one of vLLM's files in every way cosmic-ray knows, and list the changes that no case notices."""
    parallel = jobs_at_a_time or interpreters()
    known = load_reasons()
    before = kept(again) if again else []
    environment = resolve(vllm, create=True, progress=notes.print)
    meanings = load_meanings()
    chosen = _families(parsers, "in-process")

    def asked(engine: Engine) -> list[Asked]:
        every = (Asked.of(one, group, meanings, engine) for group in _groups(cases) for one in chosen)
        return [some for some in every if some.questions.asked]

    found = mutants_of(environment, file, _quietly, sample=sample, seed=seed)
    dead, left = parted(found, before)
    path = keep or state_dir() / "mutants" / f"{file.replace('/', '.').removesuffix('.py')}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    if dead:
        notes.print(f"{len(dead)} of {len(found)} mutants were killed by the earlier run")
    with path.open("w") as lines:

        def keep_line(one: Judged) -> None:
            print(one.model_dump_json(exclude={"mutant": {"code"}}), file=lines, flush=True)

        for one in dead:
            keep_line(one)
        with counted("mutants", len(left)) as advance:

            def done(one: Judged) -> None:
                keep_line(one)
                advance()

            fates = judged(environment, file, left, asked("in-process"), parallel=parallel, done=done)
        told = reasoned([*dead, *fates], file, known)
        lives = drawn(told, http, seed)
        served = _served(environment, file, lives, asked("http"), parallel) if lives else []
        for one in served:
            keep_line(one)
    of = {one.mutant.told: one for one in served}
    told = [of.get(one.mutant.told, one) for one in told]
    for one in told:
        if one.fate != "killed":
            _show_survivor(one)
    killed, of_all = score(told)
    share = 100 * killed / of_all if of_all else 100.0
    equivalent = f", {len(told) - of_all} equivalent" if of_all < len(told) else ""
    console.print(f"{file}: {killed} of {of_all} mutants killed, {share:.1f} %{equivalent}")
    if served:
        noticed = sum(one.fate == "killed" for one in served)
        console.print(f"over HTTP: {noticed} of {len(served)} asked of servers killed there")
    console.print(f"kept: {path}")
    raise typer.Exit(1 if share < least else 0)


def _served(
    environment: Environment, file: str, lives: list[Judged], asked: list[Asked], parallel: int
) -> list[Judged]:
    with counted("mutants over HTTP", len(lives)) as advance:
        return judged_over_http(environment, file, lives, asked, parallel=parallel, done=lambda _: advance())


def _show_survivor(one: Judged) -> None:
    noticed = f"noticed by {one.by}, but no worse" if one.by else "not noticed"
    where = ", by servers neither" if one.served else ""
    why = f"; {'equivalent: ' if one.reason.equivalent else ''}{one.reason.why}" if one.reason else ""
    told = f"line {one.mutant.line}, {one.mutant.operator}: {noticed}{where}{why}"
    console.print(told)
    console.print(one.mutant.change, style="dim")


def _cells(told: str) -> list[Cell]:
    name, _, spec = told.partition("@")
    cells = list(Run.named(name).cells())
    wanted = spec or cells[0].environment
    chosen = [cell for cell in cells if cell.environment == wanted]
    if not spec and len(chosen) != len(cells):
        there = ", ".join(sorted({cell.environment for cell in cells}))
        raise UsageError(f"run {name} has several environments: {there}", hint=f"name one: {name}@{wanted}")
    return chosen


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _known(text: str, known: Sequence[str], refusal: str) -> list[str]:
    """Names by commas, all of them known."""
    names = _split(text)
    if unknown := set(names) - set(known):
        raise UsageError(f"{refusal} {min(unknown)!r}", hint=f"there are {', '.join(known)}")
    return names


def families_asked(parsers: str, models: str, engine: Engine) -> list[Family]:
    """The families of these parsers and of these models' parsers; all where neither is given."""
    named = _families(parsers, engine) if parsers or not models else []
    of_models = (family for model in _split(models) for family in _families_of(model, engine))
    return list({family.name: family for family in (*named, *of_models)}.values())


def _families_of(model: str, engine: Engine) -> list[Family]:
    entry = load_registry().get(model)
    found = families_of_model(entry)
    if not found:
        raise UsageError(
            f"no family has the parsers of {model}: {entry.tool_call_parser} and {entry.reasoning_parser}",
            hint="name families or parsers with --parsers",
        )
    if not (served := [family for family in found if _is_served(family, engine)]):
        raise UsageError(f"{model} is not driven in process: its format is code", hint="add --engine http")
    return served


def _is_served(family: Family, engine: Engine) -> bool:
    return family.form is not None or engine == "http"


def _families(parsers: str, engine: Engine) -> list[Family]:
    served = [family for family in load_families().values() if _is_served(family, engine)]
    wanted = _split(parsers)
    if not wanted:
        return served
    chosen = [f for f in served if {f.name, f.tool_parser, f.reasoning_parser} & set(wanted)]
    names = {name for f in chosen for name in (f.name, f.tool_parser, f.reasoning_parser)}
    if unknown := set(wanted) - names:
        raise UsageError(
            f"no family has a parser {min(unknown)!r}",
            hint=f"the families are {', '.join(f.name for f in served)}",
        )
    return chosen


def _on_tokenizers(families: list[Family], tokenizers: str) -> list[Family]:
    kinds = _known(tokenizers, ("synthetic", "real"), "no kind of tokenizer is named")
    real = [one for family in families if (one := on_real_tokenizer(family))] if "real" in kinds else []
    if "real" in kinds and not real:
        raise UsageError(
            "none of these families has a real tokenizer that can be had",
            hint=f"these have: {', '.join(f.name for f in load_families().values() if on_real_tokenizer(f))}",
        )
    return [*(families if "synthetic" in kinds else []), *real]


def _subjects(vllm: str, frontend: str, engine: Engine) -> list[Subject]:
    known: tuple[Frontend, ...] = get_args(Frontend)
    chosen = _known(frontend, known, "vLLM has no front end")
    if engine != "http" and chosen != ["python"]:
        raise UsageError("parsers driven in process have no front end", hint="add --engine http")
    environments = [(spec, resolve(spec, create=True, progress=notes.print)) for spec in _split(vllm)]
    for _, environment in environments:
        if missing := set(chosen) - set(environment.frontends):
            raise UsageError(
                f"{environment.describe()} carries no {min(missing)} front end",
                hint="name one that does with --vllm, such as 0.33.0@0.32.0",
            )
    return [Subject(*environment, name) for environment in environments for name in known if name in chosen]


def _groups(cases: str) -> tuple[Group, ...]:
    wanted = _known(cases, GROUPS, "no group of cases is named")
    return tuple(group for group in GROUPS if group in (wanted or BY_DEFAULT))


def _work(
    folder: Run,
    subjects: list[Subject],
    everything: list[Asked],
    engine: Engine,
    parallel: int,
) -> list[HarnessError]:
    todo = jobs(folder, subjects, everything, engine=engine, parallel=parallel)
    total = sum(len(job.asked) for job in todo)
    kept = len(subjects) * sum(bool(one.questions.asked) for one in everything) - total
    if kept:
        notes.print(f"{kept} cells of this run have finished before")
    with counted("cells", total) as advance:
        return work(folder, todo, parallel=parallel, done=lambda _: advance())


def _search(
    folder: Run, subjects: list[Subject], families: list[Family], how: Search, parallel: int
) -> list[Found]:
    """The smallest meanings that show each kind of failure, kept beside the cells."""
    found = []
    with counted("families searched", len(subjects) * len(families)) as advance:
        for subject in subjects:
            place = folder.place(subject.name) / f"found-{how.budget}-{how.seed}"
            found += search(
                subject.environment,
                families,
                how,
                place,
                parallel=parallel,
                done=lambda _: advance(),
            )
    rows = [(one.family, one.way, one.wrong, str(one.file.relative_to(folder.folder))) for one in found]
    if found:
        show_table(console, ("family", "parsed", "wrong", "file"), rows)
        console.print("these are the smallest of each kind; what asks one again:")
        console.print("  --parsers FAMILY --cases canonical --meanings FILE")
    return found


def _quietly(said: str) -> None:
    notes.print(said, style="dim")


def _show_coverage(files: list[FileCoverage]) -> None:
    rows = []
    for one in files:
        branches = "-" if one.branches is None else f"{one.branches:.0f} %"
        some = one.families[:3] + (("...",) if len(one.families) > 3 else ())
        shares = (f"{one.lines:.0f} %", f"{one.explained:.0f} %", branches, str(one.statements))
        rows.append((one.name, *shares, ", ".join(some), one.missing))
    headings = ("file", "lines", "or reason", "branches", "of", "run by", "did not run, and has no reason")
    show_table(console, headings, rows, headings[1:5])
    for why in dict.fromkeys(why for one in files for why in one.reasons):
        console.print(f"{sum(one.reasons.get(why, 0) for one in files)} lines: {why}")
    statements = sum(one.statements for one in files)
    covered = sum(one.statements * one.lines for one in files) / statements
    over, with_reason = (sum(one.lines >= 90 for one in files), sum(one.explained >= 90 for one in files))
    console.print(f"{covered:.1f} % of {statements} lines")
    console.print(f"{over} of {len(files)} files at 90 % or more, {with_reason} with what has a reason")


def _tell(changed: list[Change], than: str) -> int:
    worse = [change for change in changed if change.worse]
    better = [change for change in changed if not change.worse]
    for title, some in (("worse", worse), ("better", better)):
        if some:
            console.print(f"{title} than {than}:")
            rows = [(one.case, one.family, one.group, _ways(one.before), _ways(one.after)) for one in some]
            show_table(console, ("case", "family", "group", "before", "after"), rows)
    console.print(f"{len(worse)} worse, {len(better)} better than {than}")
    return 1 if worse else 0


def _ways(wrong: dict[str, tuple[str, ...]]) -> str:
    kinds: dict[str, list[str]] = {}
    for way, found in wrong.items():
        kinds.setdefault(", ".join(found), []).append(way)
    return "; ".join(f"{kind} ({', '.join(ways)})" for kind, ways in kinds.items()) or "right"
