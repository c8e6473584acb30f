"""What answers take that grow: how time and memory grow with them, and what blocks the event loop."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from vllm_harness._regression.cases.delivery import Delivery
from vllm_harness._regression.engines.answer import CostPoint, Curve
from vllm_harness._regression.results.cells import Cell
from vllm_harness._regression.results.mismatches import Mismatch, MismatchCode
from vllm_harness.extras.costs.growing import BLOCKED_S

MOST_EXPONENT = 1.3
QUADRATIC = 2.5
"""Above this, what is known to take the square of an answer's length does not explain it."""
FITTED = 4
"""The longest lengths, and the fewest, that tell how a curve grows."""
LEAST_S = 0.0005
"""What takes less is too short to be told from noise."""
MUCH_S = 0.05
"""Where the longest answer of a curve takes so much, the other lengths need not tell."""
LEAST_BYTES = 100_000
ORDINARY_TOKENS = 16384
"""An answer of so many tokens is one that servers give every day."""


def time_exponent(curve: Curve) -> float | None:
    """The k for which the CPU time grows as the k-th power of the size; None: too few lengths tell.

    Where the longest takes much, fewer do: the others then count as the least that tells, so that the time
    grows at least so fast.
    """
    figures = [(point.size, point.cpu_s) for point in curve.points]
    told = [(size, cpu_s) for size, cpu_s in figures if cpu_s >= LEAST_S]
    if len(told) < FITTED and figures and figures[-1][1] >= MUCH_S:
        told = [(size, max(cpu_s, LEAST_S)) for size, cpu_s in figures]
    return _exponent(told)


def memory_exponent(curve: Curve) -> float | None:
    """The same of the memory."""
    return _exponent(
        (point.size, point.peak_bytes)
        for point in curve.points
        if point.peak_bytes is not None and point.peak_bytes >= LEAST_BYTES
    )


def _exponent(figures: Iterable[tuple[float, float]]) -> float | None:
    """The median slope between any two of the longest lengths, which one disturbed figure does not move."""
    logs = [(math.log(size), math.log(figure)) for size, figure in figures][-FITTED:]
    if len(logs) < FITTED:
        return None
    return median((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(logs, 2) if b[0] != a[0])


def curve_mismatches(curve: Curve) -> tuple[Mismatch, ...]:
    """What is wrong with a curve; one that the deadline ended before enough lengths told grows too fast."""
    time, memory = time_exponent(curve), memory_exponent(curve)
    found = []
    if (time or 0) > QUADRATIC:
        found.append(MismatchCode.TIME_SUPERQUADRATIC)
    elif (curve.stopped_at is not None and time is None) or (time or 0) > MOST_EXPONENT:
        found.append(MismatchCode.TIME_SUPERLINEAR)
    if (memory or 0) > MOST_EXPONENT:
        found.append(MismatchCode.MEMORY_SUPERLINEAR)
    if blocked_at(curve) is not None:
        found.append(MismatchCode.LOOP_BLOCKED)
    return tuple(map(Mismatch, found))


def blocked_at(curve: Curve) -> CostPoint | None:
    """The shortest answer of an ordinary length with a step that blocks the event loop."""
    return next(
        (
            point
            for point in curve.points
            if point.longest_s > BLOCKED_S and point.size <= 1.1 * ORDINARY_TOKENS
        ),
        None,
    )


@dataclass(frozen=True)
class FamilyCost:
    """The steepest curves of a family's parsers.

    Attributes:
        family, tool_parser, reasoning_parser: whose.
        whole, streamed: the steepest curve: exponent, and the case that shows it; None: none could be fitted.
        findings: how many curves are findings, and of how many.
        longest: seconds of the longest step of an answer of an ordinary length, its size and its case.
    """

    family: str
    tool_parser: str | None
    reasoning_parser: str | None
    whole: tuple[float, str] | None
    streamed: tuple[float, str] | None
    findings: tuple[int, int]
    longest: tuple[float, int, str] | None


def family_costs(cells: Sequence[Cell]) -> Iterator[FamilyCost]:
    """The cost of each cell of the group `cost`, in order of families."""
    for cell in sorted(cells, key=lambda cell: cell.family):
        curves = [
            (name, delivery, curve)
            for name, case in cell.cases.items()
            for delivery, curve in case.curves.items()
        ]
        if curves:
            yield FamilyCost(
                cell.family,
                cell.tool_parser,
                cell.reasoning_parser,
                _steepest(curves, streamed=False),
                _steepest(curves, streamed=True),
                (sum(bool(curve_mismatches(curve)) for _, _, curve in curves), len(curves)),
                _longest(curves),
            )


_Curves = Sequence[tuple[str, Delivery, Curve]]


def _steepest(curves: _Curves, *, streamed: bool) -> tuple[float, str] | None:
    exponents = [
        (exponent, name)
        for name, delivery, curve in curves
        if delivery.is_streamed == streamed and (exponent := time_exponent(curve)) is not None
    ]
    return max(exponents, default=None)


def _longest(curves: _Curves) -> tuple[float, int, str] | None:
    return max(
        (
            (point.longest_s, point.size, name)
            for name, _, curve in curves
            for point in curve.points
            if point.size <= 1.1 * ORDINARY_TOKENS
        ),
        default=None,
    )
