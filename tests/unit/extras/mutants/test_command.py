"""The `mutants` command without a server: what it refuses, and which results of earlier runs it reuses."""

from __future__ import annotations

import pytest

from vllm_harness._errors import UsageError
from vllm_harness.extras.mutants.command import _known, _refuse_unknown
from vllm_harness.extras.mutants.judge import JudgedMutant, MutantStatus
from vllm_harness.extras.mutants.mutant import ServingMutant

FILE = "parser/harmony.py"


def mutant(id_: str, code: str = "a") -> ServingMutant:
    return ServingMutant(id_, FILE, "by hand", code, "", None)


def judged(of: ServingMutant, status: MutantStatus) -> JudgedMutant:
    return JudgedMutant(id=of.id, file=FILE, kind="by hand", digest=of.digest, status=status)


def test_an_unknown_id_and_files_without_mutants_are_refused() -> None:
    _refuse_unknown(["a"], [mutant("a"), mutant("b")])
    with pytest.raises(UsageError, match="no mutant of these files is called c"):
        _refuse_unknown(["a", "c"], [mutant("a")])
    with pytest.raises(UsageError, match="these files have no mutants"):
        _refuse_unknown([], [])


def test_undecided_mutants_are_judged_again() -> None:
    every = [mutant(name) for name in ("killed", "survived", "unreached", "noticed", "not judged", "changed")]
    statuses: tuple[MutantStatus, ...] = ("killed", "survived", "unreached", "noticed", "not judged")
    earlier = [judged(of, status) for of, status in zip(every, statuses, strict=False)]
    earlier += [judged(mutant("changed", code="b"), "killed"), judged(mutant("gone"), "killed")]
    assert list(_known(earlier, every, again=False)) == ["killed", "survived", "unreached", "noticed"]
    assert list(_known(earlier, every, again=True)) == ["killed"]


def test_the_last_of_two_results_counts() -> None:
    of = mutant("a")
    earlier = [judged(of, "survived"), judged(of, "killed")]
    assert _known(earlier, [of], again=False)["a"].status == "killed"
