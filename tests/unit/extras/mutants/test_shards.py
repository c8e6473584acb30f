"""Mutants as shards: each is sent with its tests, which are chosen only when it is sent."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.unit.extras.mutants.test_judgement import FILE, judged, mutant, names, ran
from vllm_harness.extras.mutants.judge import Judge, MutantTrial
from vllm_harness.extras.mutants.shards import _JudgeWork
from vllm_harness.extras.mutants.suites import Suites
from vllm_harness.extras.review.coverage import Coverage

IMPORTERS = {"vllm.entrypoints.anthropic.serving": ("vllm.a",), "vllm.a": ("vllm.b",)}


def sent(judge: Judge, ends: float | None = None) -> Callable[[Sequence[str]], Any]:
    """The work for a mutant as it arrives on another machine."""
    made: Callable[[Sequence[str]], Any] = pickle.loads(pickle.dumps(_JudgeWork(judge, mutant("m"), ends)))
    return made


def trial_of(work: Any) -> MutantTrial:
    trial: MutantTrial = work.args[0]
    return trial


def test_the_tests_are_chosen_when_the_mutant_is_sent() -> None:
    judge = Judge(Suites("0.32.0", ("qwen3",)), Coverage([ran("t.py::a"), ran("t.py::b")]), IMPORTERS)
    trial = trial_of(sent(judge))
    assert (trial.of, names(list(trial.chosen))) == (2, ["t.py::a", "t.py::b"])
    assert trial.importers == ("vllm.a", "vllm.b")
    judge.learn([judged("n", "killed", FILE).model_copy(update={"by": "t.py::b"})])
    assert names(list(trial_of(sent(judge)).chosen)) == ["t.py::b", "t.py::a"]


def test_no_mutant_starts_after_the_time_limit() -> None:
    judge = Judge(Suites("0.32.0", ("qwen3",)), Coverage([]), IMPORTERS)
    assert list(sent(judge, time.time() - 1)(["m"])) == [("m", None)]
    ((name, result),) = sent(judge, time.time() + 60)(["m"])
    assert (name, result.status) == ("m", "unreached")
