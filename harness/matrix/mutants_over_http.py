"""Mutants that no case notices in process, asked of servers over HTTP."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.environments.spec import Environment
from harness.matrix.compare import changes
from harness.matrix.mutants import Judged, Mutant, module_of
from harness.matrix.results import Cell, Run
from harness.matrix.run import Asked, Subject, jobs, work
from harness.scripted.families import Family

_SOUND = "-sound"


def drawn(found: Sequence[Judged], count: int, seed: int) -> list[Judged]:
    """So many of the mutants that live and could be noticed; a server takes only those within functions."""
    lives = [
        one
        for one in found
        if one.fate != "killed" and one.mutant.statement and not (one.reason and one.reason.equivalent)
    ]
    return random.Random(seed).sample(lives, min(count, len(lives)))


def judged_over_http(
    environment: Environment, file: str, lives: Sequence[Judged], asked: Sequence[Asked], *, parallel: int = 1
) -> list[Judged]:
    """Asks each mutant of a server; one is killed where a case is worse than on the server as it is.

    Args:
        asked: cases for the engine `http`.

    Raises:
        HarnessError: the first of those that kept the cases from being asked.
    """
    if not lives:
        return []
    with tempfile.TemporaryDirectory(prefix="vllm-harness-mutants-") as folder:
        plugins = [
            _plugin(Path(folder), number, file, one.mutant) for number, one in enumerate(lives, start=1)
        ]
        every = [
            replace(some, family=family)
            for some in asked
            for family in (
                replace(some.family, name=some.family.name + _SOUND),
                *(_with(some.family, plugin) for plugin in plugins),
            )
        ]
        run = Run(Path(folder, "run"))
        todo = jobs(run, [Subject("any", environment)], every, engine="http", parallel=parallel)
        if errors := work(run, todo, parallel=parallel, done=lambda _: None):
            raise errors[0]
        cells = list(run.cells())
    before = _of(cells, _SOUND)
    return [
        _again(one, before, _of(cells, f"-{plugin.stem}")) for one, plugin in zip(lives, plugins, strict=True)
    ]


def _plugin(folder: Path, number: int, file: str, mutant: Mutant) -> Path:
    code = folder / f"code_{number}.py"
    code.write_text(mutant.code)
    plugin = folder / f"mutant_{number}.py"
    plugin.write_text(f"from vllm_harness_mutant import put\n\nput({module_of(file)!r}, {str(code)!r})\n")
    return plugin


def _with(family: Family, plugin: Path) -> Family:
    kind = "tool" if family.tool_parser else "reasoning"
    args = (*family.args, f"--{kind}-parser-plugin", str(plugin))
    return replace(family, name=f"{family.name}-{plugin.stem}", args=args)


def _of(cells: Sequence[Cell], suffix: str) -> list[Cell]:
    """The cells of one variant, under the names of the families."""
    return [
        cell.model_copy(update={"family": cell.family.removesuffix(suffix)})
        for cell in cells
        if cell.family.endswith(suffix)
    ]


def _again(one: Judged, before: Sequence[Cell], after: Sequence[Cell]) -> Judged:
    worse = next((change for change in changes(before, after) if change.worse), None)
    if worse is None:
        return one.model_copy(update={"served": True})
    by = f"{worse.family}, {worse.group}, {worse.case}"
    return one.model_copy(update={"fate": "killed", "by": by, "served": True, "reason": None})
