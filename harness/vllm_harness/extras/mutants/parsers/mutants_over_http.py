"""Runs mutants on servers over HTTP if no case notices them in process."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from vllm_harness._environments.spec import Environment
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._regression.cases.case import CaseSet
from vllm_harness._regression.results.cells import Cell, RegressionRun
from vllm_harness._regression.results.compare import changes
from vllm_harness._regression.run import run_batches, unfinished
from vllm_harness._scripted.families import Family
from vllm_harness.extras.mutants.parsers.mutants import MUTANT_WORKERS, Mutant, MutantResult, module_of


def sample_survivors(results: Sequence[MutantResult], count: int, seed: int) -> list[MutantResult]:
    """Draws survivors that a client could notice, and whose change is in a function, as servers require."""
    survivors = [
        result
        for result in results
        if result.status != "killed"
        and result.mutant.statement
        and not (result.reason and result.reason.equivalent)
    ]
    return random.Random(seed).sample(survivors, min(count, len(survivors)))


def judge_over_http(
    environment: Environment,
    file: str,
    survivors: Sequence[MutantResult],
    case_sets: Sequence[CaseSet],
    *,
    parallel: int = 1,
    done: Callable[[MutantResult], None] = lambda _: None,
) -> list[MutantResult]:
    """Runs each mutant in a server; it is killed if a case regresses from the unchanged server.

    Args:
        environment: the environment of the servers.
        file: the path of the file that the mutants change.
        survivors: the results of the mutants in process.
        case_sets: the cases that judge the mutants, for the engine `http`.
        parallel: the number of servers to run at a time.
        done: called with the new result of each mutant.

    Returns:
        The new results of the mutants.

    Raises:
        HarnessError: the cases could not run.
    """
    with temporary_folder() as folder:
        before = _cells(environment, case_sets, folder / "unchanged", parallel)
        results = []
        for number, survivor in enumerate(survivors, start=1):
            plugin = _plugin(folder, number, file, survivor.mutant)
            changed = [replace(cases, family=_with(cases.family, plugin)) for cases in case_sets]
            after = _cells(environment, changed, folder / plugin.stem, parallel)
            results.append(_served_result(survivor, before, after))
            done(results[-1])
    return results


def _cells(environment: Environment, case_sets: Sequence[CaseSet], folder: Path, parallel: int) -> list[Cell]:
    run = RegressionRun(folder)
    vllm = VllmUnderTest("any", environment)
    batches = unfinished(run, [vllm], case_sets, engine="http", parallel=parallel)
    if errors := run_batches(run, batches, parallel=parallel, done=lambda _: None):
        raise errors[0]
    return list(run.cells())


def _plugin(folder: Path, number: int, file: str, mutant: Mutant) -> Path:
    code = folder / f"code_{number}.py"
    code.write_text(mutant.code)
    plugin = folder / f"mutant_{number}.py"
    lines = [
        f"import sys\n\nsys.path.append({str(MUTANT_WORKERS)!r})",
        "from vllm_harness_mutant import put\n",
        f"put({module_of(file)!r}, {str(code)!r})\n",
    ]
    plugin.write_text("\n".join(lines))
    return plugin


def _with(family: Family, plugin: Path) -> Family:
    kind = "tool" if family.tool_parser else "reasoning"
    return replace(family, args=(*family.args, f"--{kind}-parser-plugin", str(plugin)))


def _served_result(survivor: MutantResult, before: Sequence[Cell], after: Sequence[Cell]) -> MutantResult:
    if any(cell.start_error for cell in after):  # the parsers work in process, so this proves nothing
        return survivor
    regression = next((change for change in changes(before, after) if change.regressed), None)
    if regression is None:
        return survivor.model_copy(update={"served": True})
    by = f"{regression.family}, {regression.group}, {regression.case}"
    return survivor.model_copy(update={"status": "killed", "by": by, "served": True, "reason": None})
