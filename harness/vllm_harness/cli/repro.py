"""`vllm-harness repro`: sends a defect's requests to a real server, and says whether it is there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from vllm_harness.cli.defects import AS_JSON, FOLDER
from vllm_harness.defects.entry import Defect
from vllm_harness.defects.registry import Defects, find, load_defects
from vllm_harness.environments.resolve import resolve
from vllm_harness.environments.spec import Environment
from vllm_harness.errors import UsageError
from vllm_harness.repro.run import Reproduction, plan_of, reproduce_all
from vllm_harness.server.progress import ConsoleProgress
from vllm_harness.terminal.status import shown
from vllm_harness.terminal.tables import plain_console, show_table

HEADINGS = ("id", "vLLM", "verdict", "the entry says", "")


def repro(
    ids: Annotated[list[str] | None, typer.Argument(help="The ids of entries.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All entries that say how.")] = False,
    vllm: Annotated[
        list[str] | None, typer.Option(help="A server environment; may be repeated. By default one.")
    ] = None,
    folder: FOLDER = None,
    as_json: AS_JSON = False,
) -> None:
    """Reproduce known defects on real servers.

    The exit code is 0 where each verdict is what the entry's versions say,
    1 where one is not, and 2 for an unknown id or an entry without steps.
    """
    defects = _chosen(ids or [], every, load_defects(folder))
    rows, wrong = [], 0
    records = []
    specs: list[str | None] = list(vllm) if vllm else [None]
    for spec in specs:
        with shown() as progress:
            environment = resolve(spec, create=True, progress=progress)
        for defect, outcome in reproduce_all(defects, environment, progress=ConsoleProgress()):
            expected = "reproduced" if defect.holds_for(environment.vllm_version) else "fixed"
            agrees = outcome.verdict in (expected, "not applicable")
            wrong += not agrees
            rows.append(_row(defect, environment, outcome, expected if not agrees else ""))
            records.append(
                {"id": defect.id, "vllm": environment.describe(), "agrees": agrees, **asdict(outcome)}
            )
    if as_json:
        print(json.dumps(records, indent=2))
    else:
        show_table(plain_console(), HEADINGS, rows)
        if len(records) == 1:
            print(*_evidence(defects[0], records[0]["answers"]), sep="\n")
    if wrong:
        raise typer.Exit(1)


def _chosen(ids: list[str], every: bool, defects: Defects) -> list[Defect]:
    if bool(ids) == every:
        raise UsageError("repro wants ids, or --all", hint="`vllm-harness defects` lists the ids")
    if every:
        return [defect for defect in defects.values() if defect.repro]
    chosen = [find(each, defects) for each in ids]
    for defect in chosen:
        plan_of(defect)
    return chosen


def _row(defect: Defect, environment: Environment, outcome: Reproduction, expected: str) -> tuple[str, ...]:
    return defect.id, environment.vllm_version, outcome.verdict, expected, outcome.why


def _evidence(defect: Defect, answers: list[object]) -> Iterator[str]:
    plan = plan_of(defect)
    yield f"\n{defect.title}"
    for step, answer in zip(plan.steps, answers, strict=False):
        yield f"\n{step.method} {step.path}"
        if step.body is not None:
            yield json.dumps(step.body, indent=2, ensure_ascii=False)
        for each in step.say:
            yield f"the model says: {json.dumps(each, ensure_ascii=False)}"
        yield f"answer: {json.dumps(answer, indent=2, ensure_ascii=False)}"
    yield f"\nright where    {plan.expected}"
    yield f"the defect is  {plan.actual}"
