"""Options that the commands of `vllm-harness regression` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vllm_harness.regression.cases.case import DEFAULT_GROUPS, GROUPS
from vllm_harness.regression.cases.delivery import Api
from vllm_harness.regression.engines import plan
from vllm_harness.regression.engines.plan import Engine
from vllm_harness.terminal.tables import plain_console

console, notes = plain_console(), plain_console(stderr=True)

PARSERS = Annotated[str, typer.Option(help="Families or vLLM's parser names, by commas; default all.")]
MODELS = Annotated[
    str, typer.Option(help="Entries of models.yaml, by commas: the families with their parsers.")
]
ENVIRONMENTS = Annotated[str, typer.Option(help="Environments, by commas: 0.32.0,0.33.0@0.32.0,tree:DIR.")]
FRONTENDS = Annotated[
    str, typer.Option(help="vLLM's HTTP front ends, by commas: python,rust (needs --engine http).")
]
GROUPS_OF_CASES = Annotated[
    str,
    typer.Option(
        "--cases",
        help=f"Groups of cases, by commas: {', '.join(GROUPS)}; default {', '.join(DEFAULT_GROUPS)}.",
    ),
]
ONLY = Annotated[list[str] | None, typer.Option(help="Name of a case: no others; may be given again.")]
BUDGET_OF_MEANINGS = Annotated[
    int, typer.Option("--budget", help="Meanings to generate for a family (properties).", min=1)
]
SEED = Annotated[int, typer.Option(help="What they are generated from.")]
CPU_S = Annotated[
    float | None,
    typer.Option(
        "--cpu-s",
        help="CPU seconds for each growing answer and delivery (cost); default 1, over HTTP 17,000 tokens.",
        min=0.01,
    ),
]
MEANINGS_FILE = Annotated[Path, typer.Option(help="A file of meanings, such as properties keep.")]
TOKENIZERS = Annotated[
    str, typer.Option(help="synthetic, and real for the families whose own can be had, by commas.")
]
ENGINE = Annotated[
    Engine, typer.Option(help="The parser objects in their interpreter, or servers over HTTP.")
]
APIS = Annotated[
    str, typer.Option(help=f"The APIs of a server, by commas: {', '.join(Api)} (needs --engine http).")
]
DEFAULT_APIS = ",".join(plan.DEFAULT_APIS)
PARALLEL = Annotated[
    int | None,
    typer.Option(
        "--jobs", help="Interpreters or servers at a time; default: two, one on a small machine.", min=1
    ),
]
RUN_NAME = Annotated[str, typer.Option(help="Name of the run; an interrupted run continues.")]
COVERAGE = Annotated[
    bool, typer.Option("--coverage", help="Measure which lines of vLLM's parsers the cases run.")
]
BASELINE = Annotated[
    Path | None, typer.Option(help="The known mismatches: only a case that regressed fails.")
]
WRITE_BASELINE = Annotated[Path | None, typer.Option(help="Write the mismatches as a baseline.")]
CHANGED = Annotated[
    bool,
    typer.Option(
        "--changed",
        help="Of a working tree, run only the families whose parsers import a file that differs from "
        "the release, or from HEAD; canonical cases, before and after the change.",
    ),
]
AS_JSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def note(line: str) -> None:
    """Prints a line of progress on standard error."""
    notes.print(line, style="dim")
