"""The parser regression cells of one vLLM, for the commands that compare two of them."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._regression.cases.case import CaseSet
from vllm_harness._regression.engines.plan import Engine
from vllm_harness._regression.results.cells import Cell, RegressionRun, raise_if_not_judged
from vllm_harness._regression.run import run_batches, unfinished
from vllm_harness.cli.counting import counted


def whole_cells(
    run: RegressionRun,
    vllm: VllmUnderTest,
    case_sets: Sequence[CaseSet],
    title: str,
    *,
    engine: Engine,
    parallel: int,
) -> list[Cell]:
    """Returns the cells of case sets, and first runs those that have not finished yet.

    Args:
        run: the run that stores the cells.
        vllm: the vLLM to run.
        case_sets: the case sets, one for each cell.
        title: the title of the progress display, in the plural.
        engine: whether to run the parsers in process or over HTTP.
        parallel: the number of interpreters at a time.

    Raises:
        HarnessError: a cell could not be run or judged; the others are kept.
    """
    batches = unfinished(run, [vllm], case_sets, engine=engine, parallel=parallel)
    with counted(title, sum(len(batch.case_sets) for batch in batches)) as advance:
        errors = run_batches(run, batches, parallel=parallel, done=lambda _: advance())
    if errors:
        raise errors[0]
    stored = (run.cell(vllm.name, engine, cases.family.name, cases.group) for cases in case_sets)
    cells = [cell for cell in stored if cell is not None]
    raise_if_not_judged(cells)
    return cells
