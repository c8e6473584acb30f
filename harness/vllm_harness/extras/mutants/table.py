"""What became of mutants, added up: by file, by kind, and the score."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from vllm_harness.extras.mutants.judge import MutantFate
from vllm_harness.extras.mutants.mutant import ServingMutant


@dataclass(frozen=True)
class MutantTally:
    """Numbers of mutants.

    Attributes:
        killed: a test failed.
        noticed: only a test that is to show a known defect passed.
        survived: no test noticed it, and a client could.
        equivalent: no client could notice it.
        not_judged: it was not loaded, or the tests did not run.
    """

    killed: int = 0
    noticed: int = 0
    survived: int = 0
    equivalent: int = 0
    not_judged: int = 0

    @property
    def counted(self) -> int:
        """Those that a client could notice."""
        return self.killed + self.noticed + self.survived

    @property
    def score(self) -> float:
        """Percentage of these that was killed."""
        return 100 * self.killed / self.counted if self.counted else 100.0


def tally(fates: Iterable[MutantFate], mutants: Mapping[str, ServingMutant]) -> MutantTally:
    """Adds fates up; what is called equivalent counts as such only where it was not killed."""
    every = list(fates)
    equivalent = [fate for fate in every if fate.fate != "killed" and _is_equivalent(fate, mutants)]
    rest = [fate.fate for fate in every if fate not in equivalent]
    return MutantTally(
        killed=rest.count("killed"),
        noticed=rest.count("noticed"),
        survived=rest.count("survived") + rest.count("unreached"),
        equivalent=len(equivalent),
        not_judged=rest.count("not judged"),
    )


def tallies(
    fates: Sequence[MutantFate],
    mutants: Mapping[str, ServingMutant],
    by: Callable[[MutantFate], str] = lambda fate: fate.file,
) -> dict[str, MutantTally]:
    """The tally of each file, or of what else they are sorted by, in order."""
    names = sorted({by(fate) for fate in fates})
    return {name: tally([fate for fate in fates if by(fate) == name], mutants) for name in names}


def survivors(fates: Iterable[MutantFate], mutants: Mapping[str, ServingMutant]) -> list[MutantFate]:
    """Those that were not killed and are not equivalent."""
    return [fate for fate in fates if fate.fate != "killed" and not _is_equivalent(fate, mutants)]


def _is_equivalent(fate: MutantFate, mutants: Mapping[str, ServingMutant]) -> bool:
    mutant = mutants.get(fate.id)
    return mutant is not None and mutant.equivalent is not None
