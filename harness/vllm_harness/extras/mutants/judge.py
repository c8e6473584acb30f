"""Judges mutants of vLLM's serving code by the suites: each on servers of its own, until a test fails."""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from vllm_harness._errors import UsageError
from vllm_harness._files.line_file import read_lines
from vllm_harness._files.strict import StrictModel
from vllm_harness._regression.changed.choice import choose
from vllm_harness._regression.changed.coverage import Coverage, TestLines, lines_run
from vllm_harness.extras.mutants.importers import Importers, all_importers
from vllm_harness.extras.mutants.mutant import Kind, ServingMutant
from vllm_harness.extras.mutants.parsers.mutants import module_of
from vllm_harness.extras.mutants.plans import JUDGING, JUDGING_PLAN, JudgingPlan, TestOutcome
from vllm_harness.extras.mutants.startup_files import write_changed
from vllm_harness.extras.mutants.suites import ENDED, Suites

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


@dataclass(frozen=True)
class MutantTrial:
    """A mutant and the tests that judge it, on whatever machine.

    Attributes:
        mutant: which.
        chosen: the tests, in the order in which they run.
        of: how many run what it changes.
        importers: the modules that import the one that it changes.
        suites: of which vLLM they are.
    """

    mutant: ServingMutant
    chosen: tuple[TestLines, ...]
    of: int
    importers: tuple[str, ...]
    suites: Suites

    def fate(self) -> MutantFate:
        """Judges the mutant here."""
        mutant = self.mutant
        about = {"id": mutant.id, "file": mutant.file, "kind": mutant.kind, "digest": mutant.digest}
        fate = MutantFate(**about, fate="unreached", of=self.of)
        if not self.chosen:
            return fate
        started = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="vllm-harness-mutant-") as folder:
                update = self._judged(Path(folder))
        except UsageError as error:
            update = {"fate": "not judged", "why": error.message}
        return fate.model_copy(update={**update, "seconds": round(time.monotonic() - started, 1)})

    def _judged(self, folder: Path) -> dict[str, Any]:
        first, mark = write_changed(folder, self.mutant, self.importers)
        plan, outcomes, log = folder / "plan.json", folder / "outcomes", folder / "log"
        plan.write_text(
            JudgingPlan(tests=tuple(test.test for test in self.chosen), outcomes=outcomes).model_dump_json()
        )
        code = self._suites(self.chosen).run(JUDGING, first, {JUDGING_PLAN: str(plan)}, log, LIMIT_S)
        found = _read(outcomes)
        update = verdict(found, loaded=mark.exists())
        if update["fate"] == "killed" and any(text in update["why"] for text in OUT_OF_TIME):
            by = next(test for test in self.chosen if test.test == update["by"])
            if not self._passes_unchanged(by, folder):
                update = {"fate": "not judged", "why": f"{by.test} runs out of time without it, too"}
        if update["fate"] == "survived" and (code not in ENDED or len(found) < len(self.chosen)):
            last = log.read_text(errors="replace").splitlines()[-3:]
            update = {"fate": "not judged", "why": f"pytest ended with {code}: {' | '.join(last)}"}
        return {**update, "ran": len(found)}

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


@dataclass
class Judge:
    """Judges mutants of one vLLM.

    Attributes:
        suites: the tests, and the models that they run on.
        coverage: what each of them runs.
        importers: of vLLM's modules.
        most: tests for a mutant at most; 0: all.
        texts: what each test says.
    """

    suites: Suites
    coverage: Coverage
    importers: Importers
    most: int = 0
    texts: Mapping[str, str] = field(default_factory=dict)
    _kills: dict[str, Counter[str]] = field(default_factory=dict)

    def learn(self, fates: Iterable[MutantFate]) -> None:
        """Has the tests that killed mutants of a file run first for its others."""
        for fate in fates:
            if fate.fate == "killed":
                self._kills.setdefault(fate.file, Counter())[fate.by] += 1

    def trial(self, mutant: ServingMutant) -> MutantTrial:
        """A mutant with the tests that judge it, by what is known now."""
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

    def one(self, mutant: ServingMutant) -> MutantFate:
        """Judges a mutant here."""
        return self.trial(mutant).fate()


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
    return read_lines(path, MutantFate, what="fate of a mutant", hint="give what --keep wrote")


def _read(path: Path) -> list[TestOutcome]:
    return read_lines(path, TestOutcome, what="outcome of a test", hint="judge the mutant again")
