"""The options of `vllm-harness regression`, and the consoles that its commands print to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vllm_harness._regression.cases.groups import BUDGET, GenerationPlan
from vllm_harness._regression.cases.meanings import FILE
from vllm_harness._regression.engines import plan
from vllm_harness._regression.engines.plan import Engine
from vllm_harness._regression.selection import (
    Selection,
    on_tokenizers,
    select_apis,
    select_families,
    select_groups,
)
from vllm_harness._server.leases.allocation import interpreters
from vllm_harness._terminal.tables import plain_console

console, notes = plain_console(), plain_console(stderr=True)
GROUPS_OF_A_CHANGE = "canonical,forced,chunks,malformed,look-alikes,properties"
"""The groups that can show a change to a parser, which take a few seconds for each family."""


@dataclass(frozen=True)
class RegressionOptions:
    """What `vllm-harness regression` runs, and how."""

    parsers: str = ""
    model: list[str] | None = None
    vllm: str = "0.32.0"
    frontends: str = "python"
    cases: str = ""
    only: list[str] | None = None
    budget: int = BUDGET
    seed: int = 0
    cpu_s: float | None = None
    meanings: Path = FILE
    tokenizers: str = "synthetic"
    engine: Engine = "in-process"
    apis: str = ",".join(plan.DEFAULT_APIS)
    jobs: int | None = None
    run: str = ""
    coverage: bool = False
    baseline: Path | None = None
    write_baseline: Path | None = None
    changed: bool = False
    changed_from: str = ""

    @property
    def parallel(self) -> int:
        """The number of servers or interpreters to run at a time."""
        return self.jobs or interpreters()

    def selection(self) -> Selection:
        """The cases that the options select."""
        families = select_families(self.parsers, ",".join(self.model or ()))
        return Selection(
            tuple(on_tokenizers(families, self.tokenizers)),
            select_groups(self.cases or (GROUPS_OF_A_CHANGE if self.changed else "")),
            self.engine,
            tuple(self.only or ()),
            self.meanings,
            GenerationPlan(self.budget, self.seed),
            select_apis(self.apis),
            self.cpu_s,
        )


def note(line: str) -> None:
    """Prints a line of progress on standard error."""
    notes.print(line, style="dim")
