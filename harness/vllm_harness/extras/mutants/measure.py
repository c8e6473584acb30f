"""What is known of the tests: the lines of vLLM that each runs, measured once for a vLLM, and its text."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from vllm_harness._errors import HarnessError
from vllm_harness._files.line_file import end_whole
from vllm_harness._machine.side_by_side import side_by_side
from vllm_harness._regression.changed.coverage import Coverage, read_coverage
from vllm_harness._regression.changed.serving import serving_files
from vllm_harness.extras.mutants.plans import (
    COLLECTED,
    COLLECTING,
    WATCHING,
    WATCHING_PLAN,
    TestText,
    WatchingPlan,
)
from vllm_harness.extras.mutants.startup_files import write_watched
from vllm_harness.extras.mutants.suites import ENDED, Suites


def measure(
    package: Path, suites: Suites, kept: Path, progress: Callable[[str], None], *, parallel: int = 1
) -> Coverage:
    """Runs every test that is not kept yet, one after the other on each model, and keeps what it ran.

    Args:
        package: vLLM's.
        suites: of which vLLM, models and paths.
        kept: the file of coverage.
        progress: called where a model is done.
        parallel: models at a time.

    Raises:
        HarnessError: pytest could not run them.
    """
    files = serving_files(package)
    end_whole(kept)

    def of_model(model: str) -> None:
        with tempfile.TemporaryDirectory(prefix="vllm-harness-lines-") as name:
            _of_model(Path(name), package, files, replace(suites, models=(model,)), kept)
        progress(f"{model}: measured")

    if errors := side_by_side([partial(of_model, model) for model in suites.models], parallel):
        raise errors[0]
    return read_coverage(kept)


def texts_of(suites: Suites) -> dict[str, str]:
    """The code of each test's function and the values of its case; no test runs.

    Raises:
        HarnessError: pytest could not collect them.
    """
    with tempfile.TemporaryDirectory(prefix="vllm-harness-texts-") as name:
        texts, log = Path(name) / "texts", Path(name) / "log"
        code = suites.run(COLLECTING, Path(name), {COLLECTED: str(texts)}, log)
        _check(code, log, "the tests were not collected")
        found = map(TestText.model_validate_json, texts.read_bytes().splitlines())
        return {test.test: test.text for test in found}


def _of_model(folder: Path, package: Path, files: Sequence[str], suites: Suites, kept: Path) -> None:
    first, memory, starts = write_watched(folder, package, files)
    plan, log = folder / "plan.json", folder / "log"
    plan.write_text(WatchingPlan(memory=memory, starts=dict(starts), kept=kept).model_dump_json())
    code = suites.run(WATCHING, first, {WATCHING_PLAN: str(plan)}, log)
    _check(code, log, f"the suites did not run on {suites.models[0]}")


def _check(code: int | None, log: Path, what: str) -> None:
    if code not in ENDED:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise HarnessError(f"{what}:\n{last}")
