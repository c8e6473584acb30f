"""`vllm-harness defects export`: writes reports of defects that are ready to file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vllm_harness._defects.entry import DefectClass
from vllm_harness._defects.registry import find, load_defects
from vllm_harness._defects.repro.reproducer import checked, is_reproducible
from vllm_harness.cli.repro import environments_of
from vllm_harness.cli.repro_runs import measured_in
from vllm_harness.extras.triage.export import INDEX
from vllm_harness.extras.triage.export import export as write


def export(
    into: Annotated[Path, typer.Argument(help="The folder to write; each defect gets a folder in it.")],
    ids: Annotated[list[str] | None, typer.Argument(help="The ids of entries; by default all.")] = None,
    class_: DefectClass = "defect",
    vllm: str | None = None,
    run: str = "",
    jobs: int | None = None,
    folder: Path | None = None,
) -> None:
    """Reproduce defects; write for each a report, and a script that needs only vLLM.

    Verdicts that are stored in the run of `repro` named by --run are reused.
    """
    known = load_defects(folder)
    chosen = [checked(find(each, known)).defect for each in ids or ()] or [
        each for each in known.values() if each.kind == class_ and is_reproducible(each)
    ]
    (environment,) = environments_of([vllm] if vllm else None)
    measured = {each.id: each for each in measured_in(chosen, [environment], run, jobs)}
    shown = [(each, measured[each.id]) for each in chosen if measured[each.id].verdict == "reproduced"]
    write(shown, environment.environment.describe(), into)
    print(f"{len(shown)} of {len(chosen)} defects are reproduced: {into / INDEX}")
    for each in chosen:
        if measured[each.id].verdict != "reproduced":
            print(f"{each.id}: {measured[each.id].verdict} {measured[each.id].why}".rstrip())
