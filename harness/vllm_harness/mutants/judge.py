"""Judges mutants of vLLM's serving code by the suites: each on servers of its own, until a test fails."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Literal

from pydantic import ValidationError

from vllm_harness.errors import UsageError
from vllm_harness.files.strict import StrictModel
from vllm_harness.mutants.choice import choose
from vllm_harness.mutants.coverage import Coverage, TestLines, lines_run
from vllm_harness.mutants.first_files import write_changed
from vllm_harness.mutants.importers import Importers, all_importers
from vllm_harness.mutants.mutant import Kind, ServingMutant
from vllm_harness.mutants.plans import JUDGING, JUDGING_PLAN, JudgingPlan, TestOutcome
from vllm_harness.mutants.suites import ENDED, Suites
from vllm_harness.regression.mutation.mutants import module_of

Fate = Literal["killed", "noticed", "survived", "unreached", "not judged"]
LIMIT_S = 1800.0
"""Seconds that the tests of one mutant may take."""
NOT_IMPORTED = "cannot be imported as"
OUT_OF_TIME = ("Timeout (>", "was not ready after", "timed out", "ReadTimeout")


class MutantFate(StrictModel):
    """What became of a mutant.

    Attributes:
        id, file, kind, digest: of the mutant.
        fate: `noticed` where no test failed, but one that is to show a known defect passed; `unreached`
            where no test runs what it changes; `not judged` where no server loaded it, or the tests did not
            run.
        by: the test that decided.
        why: how it failed, or why there is no judgement.
        ran: how many tests ran.
        of: how many run what it changes.
        seconds: that it took.
    """

    id: str
    file: str
    kind: Kind
    digest: str
    fate: Fate
    by: str = ""
    why: str = ""
    ran: int = 0
    of: int = 0
    seconds: float = 0.0


@dataclass
class Judge:
    """Judges mutants of one vLLM.

    Attributes:
        suites: the tests, and the models that they run on.
        coverage: what each of them runs.
        importers: of vLLM's modules.
        most: tests for a mutant at most; 0: all.
    """

    suites: Suites
    coverage: Coverage
    importers: Importers
    most: int = 0
    _kills: dict[str, Counter[str]] = field(default_factory=dict)

    def all(
        self,
        mutants: Sequence[ServingMutant],
        done: Callable[[MutantFate], None],
        *,
        parallel: int = 1,
        limit_s: float | None = None,
    ) -> list[MutantFate]:
        """Judges them in their order, so many at a time.

        Args:
            mutants: which.
            done: called with each fate, by one thread at a time.
            parallel: how many at a time.
            limit_s: seconds after which no other one is begun.
        """
        ends = None if limit_s is None else time.monotonic() + limit_s
        lock = Lock()

        def judge_one(mutant: ServingMutant) -> MutantFate | None:
            if ends is not None and time.monotonic() > ends:
                return None
            fate = self.one(mutant)
            with lock:
                self.learn([fate])
                done(fate)
            return fate

        with ThreadPoolExecutor(parallel) as pool:
            return [fate for fate in pool.map(judge_one, mutants) if fate is not None]

    def learn(self, fates: Iterable[MutantFate]) -> None:
        """Has the tests that killed mutants of a file run first for its others."""
        for fate in fates:
            if fate.fate == "killed":
                self._kills.setdefault(fate.file, Counter())[fate.by] += 1

    def one(self, mutant: ServingMutant) -> MutantFate:
        """Judges a mutant."""
        running = self.coverage.running(mutant.file, mutant.span)
        depth = partial(lines_run, file=mutant.file, span=mutant.span)
        chosen = choose(running, self.most, self._kills.get(mutant.file), depth)
        fate = MutantFate(
            id=mutant.id,
            file=mutant.file,
            kind=mutant.kind,
            digest=mutant.digest,
            fate="unreached",
            of=len(running),
        )
        if not chosen:
            return fate
        started = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="vllm-harness-mutant-") as folder:
                fate = self._judged(fate, mutant, chosen, Path(folder))
        except UsageError as error:
            fate = fate.model_copy(update={"fate": "not judged", "why": error.message})
        return fate.model_copy(update={"seconds": round(time.monotonic() - started, 1)})

    def _judged(
        self, fate: MutantFate, mutant: ServingMutant, chosen: Sequence[TestLines], folder: Path
    ) -> MutantFate:
        module = module_of(mutant.file).removesuffix(".__init__")
        first, mark = write_changed(folder, mutant, all_importers(module, self.importers))
        plan, outcomes, log = folder / "plan.json", folder / "outcomes", folder / "log"
        plan.write_text(
            JudgingPlan(tests=tuple(test.test for test in chosen), outcomes=outcomes).model_dump_json()
        )
        code = self._suites(chosen).run(JUDGING, first, {JUDGING_PLAN: str(plan)}, log, LIMIT_S)
        found = _read(outcomes)
        update = verdict(found, loaded=mark.exists())
        if update["fate"] == "killed" and any(text in update["why"] for text in OUT_OF_TIME):
            by = next(test for test in chosen if test.test == update["by"])
            if not self._passes_unchanged(by, folder):
                update = {"fate": "not judged", "why": f"{by.test} runs out of time without it, too"}
        if update["fate"] == "survived" and (code not in ENDED or len(found) < len(chosen)):
            last = log.read_text(errors="replace").splitlines()[-3:]
            update = {"fate": "not judged", "why": f"pytest ended with {code}: {' | '.join(last)}"}
        return fate.model_copy(update={**update, "ran": len(found)})

    def _passes_unchanged(self, test: TestLines, folder: Path) -> bool:
        """Whether a test that ran out of time passes without the mutant, as busy as the machine is now."""
        first, plan, outcomes = folder / "nothing.py", folder / "plan.json", folder / "unchanged"
        first.write_text("")
        plan.write_text(JudgingPlan(tests=(test.test,), outcomes=outcomes).model_dump_json())
        suites = self._suites([test])
        suites.run(JUDGING, first, {JUDGING_PLAN: str(plan)}, folder / "log", LIMIT_S)
        return any(outcome.outcome in ("passed", "known") for outcome in _read(outcomes))

    def _suites(self, chosen: Sequence[TestLines]) -> Suites:
        """The models and files of these tests alone."""
        models = dict.fromkeys(test.target.partition("-")[2] for test in chosen)
        paths = dict.fromkeys(test.test.partition("::")[0] for test in chosen)
        return replace(self.suites, models=tuple(models), paths=tuple(paths))


def verdict(outcomes: Sequence[TestOutcome], *, loaded: bool) -> dict[str, str]:
    """Fate, test and reason, from what the tests came to.

    A failure counts where a server had loaded the mutant, or could not import it.
    """
    for outcome in outcomes:
        if outcome.outcome == "failed":
            killed = loaded or NOT_IMPORTED in outcome.why
            return {"fate": "killed" if killed else "not judged", "by": outcome.test, "why": outcome.why}
    if not loaded:
        return {"fate": "not judged", "why": "no server loaded it"}
    for outcome in outcomes:
        if outcome.outcome == "gone":
            return {"fate": "noticed", "by": outcome.test, "why": outcome.why}
    return {"fate": "survived"}


def read_fates(path: Path) -> list[MutantFate]:
    """The fates that earlier runs kept; none where the file is not there.

    Raises:
        UsageError: the file holds something else.
    """
    try:
        lines = path.read_text().splitlines() if path.exists() else []
        return [MutantFate.model_validate_json(line) for line in lines]
    except ValidationError as error:
        raise UsageError(f"{path} has no fates of mutants: {error}", hint="give what --keep wrote") from error


def _read(path: Path) -> list[TestOutcome]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [TestOutcome.model_validate_json(line) for line in lines]
