"""Mutants that no case notices in process, asked of servers over HTTP."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from vllm_harness.environments.spec import Environment
from vllm_harness.regression.engines.in_process import WORKERS
from vllm_harness.regression.mutation.mutants import Judged, Mutant, module_of
from vllm_harness.regression.results.compare import changes
from vllm_harness.regression.results.results import Cell, Run
from vllm_harness.regression.run import Asked, Subject, jobs, work
from vllm_harness.scripted.families import Family


def drawn(found: Sequence[Judged], count: int, seed: int) -> list[Judged]:
    """So many of the mutants that live and could be noticed; a server takes only those within functions."""
    lives = [
        one
        for one in found
        if one.fate != "killed" and one.mutant.statement and not (one.reason and one.reason.equivalent)
    ]
    return random.Random(seed).sample(lives, min(count, len(lives)))


def judged_over_http(
    environment: Environment,
    file: str,
    lives: Sequence[Judged],
    asked: Sequence[Asked],
    *,
    parallel: int = 1,
    done: Callable[[Judged], None] = lambda _: None,
) -> list[Judged]:
    """Asks each mutant of a server; one is killed where a case is worse than on the server as it is.

    Args:
        asked: cases for the engine `http`.
        done: called with each mutant that was asked.

    Raises:
        HarnessError: the first of those that kept the cases from being asked.
    """
    with tempfile.TemporaryDirectory(prefix="vllm-harness-mutants-") as told:
        folder = Path(told)
        before = _cells(environment, asked, folder / "sound", parallel)
        found = []
        for number, one in enumerate(lives, start=1):
            plugin = _plugin(folder, number, file, one.mutant)
            changed = [replace(some, family=_with(some.family, plugin)) for some in asked]
            found.append(_again(one, before, _cells(environment, changed, folder / plugin.stem, parallel)))
            done(found[-1])
    return found


def _cells(environment: Environment, asked: Sequence[Asked], folder: Path, parallel: int) -> list[Cell]:
    run = Run(folder)
    todo = jobs(run, [Subject("any", environment)], asked, engine="http", parallel=parallel)
    if errors := work(run, todo, parallel=parallel, done=lambda _: None):
        raise errors[0]
    return list(run.cells())


def _plugin(folder: Path, number: int, file: str, mutant: Mutant) -> Path:
    code = folder / f"code_{number}.py"
    code.write_text(mutant.code)
    plugin = folder / f"mutant_{number}.py"
    lines = [
        f"import sys\n\nsys.path.append({str(WORKERS)!r})",
        "from vllm_harness_mutant import put\n",
        f"put({module_of(file)!r}, {str(code)!r})\n",
    ]
    plugin.write_text("\n".join(lines))
    return plugin


def _with(family: Family, plugin: Path) -> Family:
    kind = "tool" if family.tool_parser else "reasoning"
    return replace(family, args=(*family.args, f"--{kind}-parser-plugin", str(plugin)))


def _again(one: Judged, before: Sequence[Cell], after: Sequence[Cell]) -> Judged:
    if any(
        cell.refused for cell in after
    ):  # in process its parsers could be made, so this tells nothing of it
        return one
    worse = next((change for change in changes(before, after) if change.worse), None)
    if worse is None:
        return one.model_copy(update={"served": True})
    by = f"{worse.family}, {worse.group}, {worse.case}"
    return one.model_copy(update={"fate": "killed", "by": by, "served": True, "reason": None})
