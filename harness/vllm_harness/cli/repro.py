"""`vllm-harness repro`: sends a defect's requests to a real server, and reports whether the defect shows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import Defects, find, load_defects
from vllm_harness._defects.repro.reproducer import checked, is_reproducible, jobs_of, run_job
from vllm_harness._defects.repro.verdict import Measured, Reproduction, agrees, curve_table, expected_verdict
from vllm_harness._environments.resolve import resolve
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import HarnessError, UsageError
from vllm_harness._exchange.endpoint import Endpoint, attach
from vllm_harness._extensions import REPORT_OF_DEFECT, load
from vllm_harness._protocol.core.events import Json
from vllm_harness._scripted.families import unverified
from vllm_harness._server.progress import ConsoleProgress
from vllm_harness._terminal.status import shown
from vllm_harness._terminal.tables import plain_console, show_table
from vllm_harness.cli.by_default import by_default

HEADINGS = ("id", "vLLM", "verdict", "the entry says", "")


class NotReproduced(HarnessError):
    """A report of a defect was requested, but the vLLM under test does not show the defect."""

    exit_code = 1


app = typer.Typer(
    cls=by_default("run"), no_args_is_help=True, help="Reproduce known defects on real servers."
)


@app.command("run")
def run(
    context: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(help="The ids of entries.")] = None,
    all_: bool = False,
    vllm: list[str] | None = None,
    server_url: str = "",
    api_key_env: str | None = None,
    run_: str = "",
    jobs: int | None = None,
    markdown: bool = False,
    script: bool = False,
    folder: Path | None = None,
    json_: bool = False,
    ray: str = "",
    bundle: list[Path] | None = None,
    resume_: str = "",
) -> None:
    """Reproduce known defects on real servers (`repro ID` is `repro run ID`).

    --vllm accepts several environments, repeated or separated by commas. The
    exit code is 0 if each verdict agrees with the versions in the entry, 1 if
    a verdict does not, and 2 for an unknown id or an entry without steps.
    """
    if resume_:
        from vllm_harness.cli.repro_runs import REPRO, resume

        resume(REPRO, resume_, ray, context.find_root().command.main, bundles=bundle)
    defects = _chosen(ids or [], all_, load_defects(folder))
    if ray and (server_url or len(defects) == 1):
        raise UsageError("--ray needs several defects, and no --server-url", hint="leave --ray out")
    environments = [] if server_url else environments_of(vllm)
    if markdown or script:
        print(_file(defects, environments, markdown), end="")
    elif server_url:
        _show([_on_running_server(attach(server_url, api_key_env), each) for each in defects], defects, json_)
    elif len(defects) == 1:
        _show([_on_its_server(defects[0], each) for each in environments], defects, json_)
    else:
        from vllm_harness.cli.repro_runs import measured_in  # what only a run of many defects needs

        _show(measured_in(defects, environments, run_, jobs, ray, bundle), defects, json_)


def _file(defects: Sequence[Defect], environments: Sequence[VllmUnderTest], as_markdown: bool) -> str:
    """Reproduces one defect, and returns its report or its script."""
    if len(defects) != 1 or len(environments) != 1:
        raise UsageError(
            "--markdown and --script need exactly one defect and one environment", hint="name one id"
        )
    files_of = load(REPORT_OF_DEFECT, "--markdown" if as_markdown else "--script")
    (defect,), (vllm,) = defects, environments
    measured = _on_its_server(defect, vllm)
    if measured.verdict != "reproduced":
        raise NotReproduced(
            f"{defect.id} is not reproduced on {vllm.environment.describe()}: {measured.verdict}",
            hint="choose a version that shows it with --vllm",
        )
    files = files_of(checked(defect), measured.outcome, vllm.environment.describe())
    return str(files.report if as_markdown else files.script)


def _chosen(ids: list[str], every: bool, defects: Defects) -> list[Defect]:
    if bool(ids) == every:
        raise UsageError("give ids, or --all", hint="`vllm-harness defects` lists the ids")
    if every:
        return [defect for defect in defects.values() if is_reproducible(defect)]
    return [checked(find(each, defects)).defect for each in ids]


def environments_of(specs: list[str] | None) -> list[VllmUnderTest]:
    """The environments that `--vllm` names, which are created if they do not exist yet."""
    every = [spec for given in specs or [] for spec in given.split(",") if spec] or [""]
    with shown() as progress:
        return [VllmUnderTest(spec, resolve(spec or None, create=True, progress=progress)) for spec in every]


def _on_its_server(defect: Defect, vllm: VllmUnderTest) -> Measured:
    (job,) = jobs_of([defect])
    ((_, outcome),) = run_job(job, vllm.environment, progress=ConsoleProgress())
    return Measured.of(defect.id, vllm.spec, vllm.environment.vllm_version, outcome)


def _on_running_server(endpoint: Endpoint, defect: Defect) -> Measured:
    if defect.repro is None:
        outcome = Reproduction("not applicable", "a parser's case needs a server of the parser's family")
        return Measured.of(defect.id, endpoint.base_url, "0", outcome)
    from vllm_harness._defects.repro.steps import RequestedSteps
    from vllm_harness._server.attached import AttachedServer

    steps = RequestedSteps(defect, defect.repro)
    server = AttachedServer(endpoint, steps.entry)
    return Measured.of(defect.id, endpoint.base_url, server.vllm_version, steps.on_server(server))


def _show(measured: Sequence[Measured], defects: Sequence[Defect], as_json: bool) -> None:
    """Prints the verdicts. Raises Exit(1) if a verdict does not agree with its entry."""
    by_id = {defect.id: defect for defect in defects}
    agreeing = [agrees(by_id[each.id], each) for each in measured]
    if as_json:
        records = zip(measured, agreeing, strict=True)
        print(json.dumps([{**each.model_dump(), "agrees": agreed} for each, agreed in records], indent=2))
    else:
        rows = [_row(by_id[each.id], each) for each in measured]
        show_table(plain_console(), HEADINGS, rows)
        if len(measured) == 1:
            print(*_evidence(defects[0], measured[0].answers), sep="\n")
    if not all(agreeing):
        raise typer.Exit(1)


def _row(defect: Defect, measured: Measured) -> tuple[str, ...]:
    says = "" if agrees(defect, measured) else expected_verdict(defect, measured.version)
    why = measured.why + "; unverified" * unverified(*defect.families)
    return measured.id, measured.version, measured.verdict, says, why


def _evidence(defect: Defect, answers: Sequence[Json]) -> Iterator[str]:
    yield f"\n{defect.title}"
    if defect.repro is None:
        for answer in answers:
            if table := list(curve_table(answer)):
                yield f"\n{answer['case']}, {answer['delivery']}:\n"
                yield from table
                continue
            yield f"answer: {json.dumps(answer, indent=2, ensure_ascii=False)}"
        return
    for step, answer in zip(defect.repro.steps, answers, strict=False):
        yield f"\n{step.method} {step.path}"
        if step.body is not None:
            yield json.dumps(step.body, indent=2, ensure_ascii=False)
        for each in step.say:
            yield f"the model says: {json.dumps(each, ensure_ascii=False)}"
        yield f"answer: {json.dumps(answer, indent=2, ensure_ascii=False)}"
    yield f"\ncorrect if     {defect.repro.expected}"
    yield f"the defect if  {defect.repro.actual}"
