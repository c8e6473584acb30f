"""Tallies of mutants by file and by kind, with scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from vllm_harness.extras.mutants.judge import JudgedMutant
from vllm_harness.extras.mutants.mutant import ServingMutant


@dataclass(frozen=True)
class MutantTally:
    """The number of mutants with each status.

    Attributes:
        killed: mutants with which a test failed.
        noticed: mutants with which no test failed, but a test that should show a known defect passed.
        survived: mutants that no test noticed, though a client could.
        equivalent: mutants that no client could notice.
        not_judged: mutants that no server loaded, or for which the tests did not run.
    """

    killed: int = 0
    noticed: int = 0
    survived: int = 0
    equivalent: int = 0
    not_judged: int = 0

    @property
    def counted(self) -> int:
        """The number of judged mutants that a client could notice."""
        return self.killed + self.noticed + self.survived

    @property
    def score(self) -> float:
        """The percentage of the counted mutants that were killed."""
        return 100 * self.killed / self.counted if self.counted else 100.0


def tally(results: Iterable[JudgedMutant], mutants: Mapping[str, ServingMutant]) -> MutantTally:
    """Counts results by status; a mutant declared equivalent counts as equivalent unless it was killed."""
    every = list(results)
    equivalent = [result for result in every if result.status != "killed" and _is_equivalent(result, mutants)]
    rest = [result.status for result in every if result not in equivalent]
    return MutantTally(
        killed=rest.count("killed"),
        noticed=rest.count("noticed"),
        survived=rest.count("survived") + rest.count("unreached"),
        equivalent=len(equivalent),
        not_judged=rest.count("not judged"),
    )


def tallies(
    results: Sequence[JudgedMutant],
    mutants: Mapping[str, ServingMutant],
    by: Callable[[JudgedMutant], str] = lambda result: result.file,
) -> dict[str, MutantTally]:
    """The tally of each file, or of each value that `by` returns, sorted by file or value."""
    names = sorted({by(result) for result in results})
    return {name: tally([result for result in results if by(result) == name], mutants) for name in names}


def survivors(results: Iterable[JudgedMutant], mutants: Mapping[str, ServingMutant]) -> list[JudgedMutant]:
    """The results of mutants that were not killed and are not equivalent."""
    return [result for result in results if result.status != "killed" and not _is_equivalent(result, mutants)]


def _is_equivalent(result: JudgedMutant, mutants: Mapping[str, ServingMutant]) -> bool:
    mutant = mutants.get(result.id)
    return mutant is not None and mutant.equivalent is not None
