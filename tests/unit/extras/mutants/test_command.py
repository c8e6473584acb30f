"""The command, as far as it needs no server: what it refuses, and which fates it takes from earlier runs."""

from __future__ import annotations

import pytest

from vllm_harness._errors import UsageError
from vllm_harness.extras.mutants.command import _known, _refuse_unknown
from vllm_harness.extras.mutants.judge import Fate, MutantFate
from vllm_harness.extras.mutants.mutant import ServingMutant

FILE = "parser/harmony.py"


def mutant(id_: str, code: str = "a") -> ServingMutant:
    return ServingMutant(id_, FILE, "by hand", code, "", None)


def fate(of: ServingMutant, fate: Fate) -> MutantFate:
    return MutantFate(id=of.id, file=FILE, kind="by hand", digest=of.digest, fate=fate)


def test_an_unknown_id_and_files_without_mutants_are_refused() -> None:
    _refuse_unknown(["a"], [mutant("a"), mutant("b")])
    with pytest.raises(UsageError, match="no mutant of these files is called c"):
        _refuse_unknown(["a", "c"], [mutant("a")])
    with pytest.raises(UsageError, match="these files have no mutants"):
        _refuse_unknown([], [])


def test_a_run_goes_on_with_what_is_not_decided() -> None:
    every = [mutant(name) for name in ("killed", "survived", "unreached", "noticed", "not judged", "changed")]
    fates: tuple[Fate, ...] = ("killed", "survived", "unreached", "noticed", "not judged")
    earlier = [fate(of, each) for of, each in zip(every, fates, strict=False)]
    earlier += [fate(mutant("changed", code="b"), "killed"), fate(mutant("gone"), "killed")]
    assert list(_known(earlier, every, again=False)) == ["killed", "survived", "unreached", "noticed"]
    assert list(_known(earlier, every, again=True)) == ["killed"]


def test_the_last_of_two_fates_counts() -> None:
    of = mutant("a")
    earlier = [fate(of, "survived"), fate(of, "killed")]
    assert _known(earlier, [of], again=False)["a"].fate == "killed"
