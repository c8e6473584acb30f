"""Options that the commands of `vllm-harness regression` share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from vllm_harness._regression.cases.case import DEFAULT_GROUPS, GROUPS
from vllm_harness._regression.cases.delivery import Api
from vllm_harness._regression.cases.meanings import FILE
from vllm_harness._regression.cases.properties import BUDGET
from vllm_harness._regression.engines import plan
from vllm_harness._regression.engines.plan import Engine
from vllm_harness._terminal.tables import plain_console
from vllm_harness.cli.options import CHANGED_FROM, JOBS, SEED, VLLMS

console, notes = plain_console(), plain_console(stderr=True)

PARSERS = Annotated[
    str, typer.Option(help="Families or vLLM's names of parsers, separated by commas; by default all.")
]
GROUPS_OF_CASES = Annotated[
    str,
    typer.Option(
        "--cases",
        help=f"Groups of cases, separated by commas: {', '.join(GROUPS)}; "
        f"by default {', '.join(DEFAULT_GROUPS)}.",
    ),
]
ONLY = Annotated[list[str] | None, typer.Option(help="Run only this case; may be repeated.")]
MEANINGS_FILE = Annotated[Path, typer.Option(help="A file of meanings, such as properties keep.")]
ENGINE = Annotated[
    Engine, typer.Option(help="The parser objects in their interpreter, or servers over HTTP.")
]
RUN_NAME = Annotated[str, typer.Option(help="The name of the run; one that was interrupted continues.")]
CPU_S_HELP = "CPU seconds for each growing answer and delivery (cost); by default 1, over HTTP 17,000 tokens."
CHANGED_HELP = (
    "With a working tree, run only the families whose parsers import a file that differs from the release, "
    "or from HEAD; canonical cases, before and after the change."
)


@dataclass(frozen=True)
class RegressionOptions:
    """What `vllm-harness regression` runs, and how."""

    parsers: PARSERS = ""
    models: Annotated[
        str, typer.Option(help="Model entries, separated by commas: the families with their parsers.")
    ] = ""
    vllm: VLLMS = "0.32.0"
    frontend: Annotated[
        str,
        typer.Option(help="vLLM's HTTP front ends, separated by commas: python,rust (needs --engine http)."),
    ] = "python"
    groups: GROUPS_OF_CASES = ""
    only: ONLY = None
    budget: Annotated[int, typer.Option(help="Meanings to generate a family (properties).", min=1)] = BUDGET
    seed: SEED = 0
    cpu_s: Annotated[float | None, typer.Option("--cpu-s", help=CPU_S_HELP, min=0.01)] = None
    meanings: MEANINGS_FILE = FILE
    tokenizers: Annotated[
        str, typer.Option(help="synthetic, and real for the families whose own is available, by commas.")
    ] = "synthetic"
    engine: ENGINE = "in-process"
    apis: Annotated[
        str,
        typer.Option(help=f"The APIs of a server, by commas: {', '.join(Api)} (needs --engine http)."),
    ] = ",".join(plan.DEFAULT_APIS)
    jobs: JOBS = None
    run: RUN_NAME = ""
    coverage: Annotated[
        bool, typer.Option("--coverage", help="Measure which lines of vLLM's parsers the cases run.")
    ] = False
    baseline: Annotated[
        Path | None, typer.Option(help="The known mismatches: only a case that regressed fails.")
    ] = None
    write_baseline: Annotated[Path | None, typer.Option(help="Write the mismatches as a baseline.")] = None
    changed: Annotated[bool, typer.Option("--changed", help=CHANGED_HELP)] = False
    changed_from: CHANGED_FROM = ""


def note(line: str) -> None:
    """Prints a line of progress on standard error."""
    notes.print(line, style="dim")
