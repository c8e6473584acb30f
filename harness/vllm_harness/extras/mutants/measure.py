"""Measures which lines of vLLM each test runs, once for each vLLM version, and collects the tests' texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from vllm_harness._errors import HarnessError
from vllm_harness._files.line_file import truncate_to_complete_lines
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._machine.tasks import run_tasks
from vllm_harness.extras.mutants.plans import (
    COLLECTED,
    COLLECTING,
    WATCHING,
    WATCHING_PLAN,
    TestText,
    WatchingPlan,
)
from vllm_harness.extras.mutants.startup_files import write_watched
from vllm_harness.extras.mutants.suites import COMPLETED, Suites
from vllm_harness.extras.review.coverage import Coverage, read_coverage
from vllm_harness.extras.review.serving import serving_files


def measure(
    package: Path, suites: Suites, coverage: Path, progress: Callable[[str], None], *, parallel: int = 1
) -> Coverage:
    """Runs each test that the coverage file lacks, one by one on each model, and adds the lines it ran.

    Args:
        package: the folder of vLLM's package.
        suites: the vLLM, the models and the paths of the tests.
        coverage: the path of the coverage file.
        progress: called with a message when a model is done.
        parallel: the number of models to measure at a time.

    Returns:
        The coverage of all tests in the coverage file.

    Raises:
        HarnessError: pytest could not run the tests.
    """
    files = serving_files(package)
    truncate_to_complete_lines(coverage)

    def measure_on(model: str) -> None:
        with temporary_folder() as folder:
            _measure(folder, package, files, replace(suites, models=(model,)), coverage)
        progress(f"{model}: measured")

    if errors := run_tasks([partial(measure_on, model) for model in suites.models], parallel):
        raise errors[0]
    return read_coverage(coverage)


def texts_of(suites: Suites) -> dict[str, str]:
    """Collects the code of each test's function and the values of its case, without running tests.

    Raises:
        HarnessError: pytest could not collect the tests.
    """
    with temporary_folder() as folder:
        texts, log = folder / "texts", folder / "log"
        code = suites.run(COLLECTING, folder, {COLLECTED: str(texts)}, log)
        _check(code, log, "the tests were not collected")
        tests = map(TestText.model_validate_json, texts.read_bytes().splitlines())
        return {test.test: test.text for test in tests}


def _measure(folder: Path, package: Path, files: Sequence[str], suites: Suites, coverage: Path) -> None:
    startup_file, memory, starts = write_watched(folder, package, files)
    plan, log = folder / "plan.json", folder / "log"
    plan.write_text(WatchingPlan(memory=memory, starts=dict(starts), coverage=coverage).model_dump_json())
    code = suites.run(WATCHING, startup_file, {WATCHING_PLAN: str(plan)}, log)
    _check(code, log, f"the suites did not run on {suites.models[0]}")


def _check(code: int | None, log: Path, what: str) -> None:
    if code not in COMPLETED:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise HarnessError(f"{what}:\n{last}")
