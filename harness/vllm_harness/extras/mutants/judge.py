"""Judges mutants of vLLM's serving code with the suites: each on its own servers, until a test fails."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field

from vllm_harness._errors import UsageError
from vllm_harness._files.line_file import read_lines
from vllm_harness._files.strict import StrictModel
from vllm_harness._files.temporary import temporary_folder
from vllm_harness.extras.mutants.choice import choose
from vllm_harness.extras.mutants.importers import Importers, all_importers
from vllm_harness.extras.mutants.mutant import Kind, ServingMutant
from vllm_harness.extras.mutants.parsers.mutants import module_of
from vllm_harness.extras.mutants.plans import JUDGING, JUDGING_PLAN, JudgingPlan, TestOutcome
from vllm_harness.extras.mutants.startup_files import write_changed
from vllm_harness.extras.mutants.suites import COMPLETED, Suites
from vllm_harness.extras.review.coverage import Coverage, TestLines, lines_run

MutantStatus = Literal["killed", "noticed", "survived", "unreached", "not judged"]
LIMIT_S = 1800.0
"""The seconds that the tests of one mutant may take."""
NOT_IMPORTED = "cannot be imported as"
"""Part of the error if a server cannot import its mutant; see `in_server/vllm_harness_changed.py`."""
TIMEOUTS = ("Timeout (>", "was not ready after", "timed out", "ReadTimeout")
"""Strings that show that a test failed because of a timeout."""


class JudgedMutant(StrictModel):
    """A mutant and its status, one line of the file that `--output` names.

    Attributes:
        id, file, kind, digest: see `ServingMutant`.
        status: `noticed` if no test failed, but a test that should show a known defect passed; `unreached` if
            no test runs the changed lines; `not judged` if no server loaded the mutant, or the tests did not
            run. The key in files is `fate`.
        by: the test that decided the status.
        why: how that test failed, or why the mutant was not judged.
        ran: the number of tests that ran.
        of: the number of tests that run the changed lines.
        seconds: the time that judging took.
    """

    model_config = ConfigDict(populate_by_name=True)

    id: str
    file: str
    kind: Kind
    digest: str
    status: MutantStatus = Field(alias="fate")
    by: str = ""
    why: str = ""
    ran: int = 0
    of: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class MutantTrial:
    """A mutant and the tests that judge it, on any machine.

    Attributes:
        mutant: the mutant.
        chosen: the tests, in the order in which they run.
        of: the number of tests that run the changed lines.
        importers: the modules that import the changed module.
        suites: the suites, with the vLLM that the mutant changes.
    """

    mutant: ServingMutant
    chosen: tuple[TestLines, ...]
    of: int
    importers: tuple[str, ...]
    suites: Suites

    def judge(self) -> JudgedMutant:
        """Judges the mutant on this machine."""
        mutant = self.mutant
        about = {"id": mutant.id, "file": mutant.file, "kind": mutant.kind, "digest": mutant.digest}
        result = JudgedMutant.model_validate({**about, "status": "unreached", "of": self.of})
        if not self.chosen:
            return result
        started = time.monotonic()
        try:
            with temporary_folder() as folder:
                update = self._judged(folder)
        except UsageError as error:
            update = {"status": "not judged", "why": error.message}
        return result.model_copy(update={**update, "seconds": round(time.monotonic() - started, 1)})

    def _judged(self, folder: Path) -> dict[str, Any]:
        startup_file, mark = write_changed(folder, self.mutant, self.importers)
        log = folder / "log"
        code, outcomes = self._run(self.chosen, startup_file, folder / "outcomes", log)
        update = verdict(outcomes, loaded=mark.exists())
        if update["status"] == "killed" and any(text in update["why"] for text in TIMEOUTS):
            by = next(test for test in self.chosen if test.test == update["by"])
            if not self._passes_unchanged(by, folder):
                update = {"status": "not judged", "why": f"{by.test} times out without the mutant, too"}
        if update["status"] == "survived" and (code not in COMPLETED or len(outcomes) < len(self.chosen)):
            last = log.read_text(errors="replace").splitlines()[-3:]
            update = {"status": "not judged", "why": f"pytest ended with {code}: {' | '.join(last)}"}
        return {**update, "ran": len(outcomes)}

    def _passes_unchanged(self, test: TestLines, folder: Path) -> bool:
        """Whether a test that timed out passes without the mutant, under the current load of the machine."""
        startup_file = folder / "nothing.py"
        startup_file.touch()
        _, outcomes = self._run([test], startup_file, folder / "unchanged", folder / "log")
        return any(outcome.outcome in ("passed", "known") for outcome in outcomes)

    def _run(
        self, tests: Sequence[TestLines], startup_file: Path, outcomes: Path, log: Path
    ) -> tuple[int | None, list[TestOutcome]]:
        """Runs tests, with only their models and files; returns pytest's exit code and their outcomes."""
        plan = outcomes.with_suffix(".plan")
        plan.write_text(
            JudgingPlan(tests=tuple(test.test for test in tests), outcomes=outcomes).model_dump_json()
        )
        models = dict.fromkeys(test.target.partition("-")[2] for test in tests)
        paths = dict.fromkeys(test.test.partition("::")[0] for test in tests)
        suites = replace(self.suites, models=tuple(models), paths=tuple(paths))
        code = suites.run(JUDGING, startup_file, {JUDGING_PLAN: str(plan)}, log, LIMIT_S)
        return code, read_lines(
            outcomes, TestOutcome, what="outcome of a test", hint="judge the mutant again"
        )


@dataclass
class Judge:
    """Chooses the tests that judge each mutant of one vLLM.

    Attributes:
        suites: the suites, with the vLLM and the models that they run on.
        coverage: the lines that each test runs.
        importers: the importers of vLLM's modules.
        most: the maximum number of tests for a mutant; 0 for all.
        texts: test -> the code of its function and the values of its case.
    """

    suites: Suites
    coverage: Coverage
    importers: Importers
    most: int = 0
    texts: Mapping[str, str] = field(default_factory=dict)
    _kills: dict[str, Counter[str]] = field(default_factory=dict)

    def learn(self, results: Iterable[JudgedMutant]) -> None:
        """Remembers which tests killed mutants of a file, so that they run first for the file's mutants."""
        for result in results:
            if result.status == "killed":
                self._kills.setdefault(result.file, Counter())[result.by] += 1

    def trial(self, mutant: ServingMutant) -> MutantTrial:
        """Chooses the tests that judge a mutant, according to the results so far."""
        running = self.coverage.running(mutant.file, mutant.span, mutant.caught_by)
        depth = partial(lines_run, file=mutant.file, span=mutant.span)
        about = f"{mutant.change} {mutant.what}"
        kills = dict(self._kills.get(mutant.file, {}))
        if mutant.caught_by:
            kills[mutant.caught_by] = sys.maxsize  # it runs first
        chosen = choose(running, self.most, kills, depth, about, self.texts)
        module = module_of(mutant.file).removesuffix(".__init__")
        importers = all_importers(module, self.importers)
        return MutantTrial(mutant, tuple(chosen), len(running), tuple(importers), self.suites)


def verdict(outcomes: Sequence[TestOutcome], *, loaded: bool) -> dict[str, str]:
    """The fields `status`, `by` and `why` of a judged mutant, from the outcomes of its tests.

    A failed test kills the mutant only if a server had loaded the mutant, or could not import it.
    """
    for outcome in outcomes:
        if outcome.outcome == "failed":
            killed = loaded or NOT_IMPORTED in outcome.why
            return {"status": "killed" if killed else "not judged", "by": outcome.test, "why": outcome.why}
    if not loaded:
        return {"status": "not judged", "why": "no server loaded it"}
    for outcome in outcomes:
        if outcome.outcome == "gone":
            return {"status": "noticed", "by": outcome.test, "why": outcome.why}
    return {"status": "survived"}


def read_judged(path: Path) -> list[JudgedMutant]:
    """Reads the results of earlier runs, if the file exists. Raises UsageError if its content is invalid."""
    return read_lines(path, JudgedMutant, what="result of a mutant", hint="give the file that --output wrote")
