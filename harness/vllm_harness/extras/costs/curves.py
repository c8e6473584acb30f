"""Judges cost curves: how time and memory grow with the answer, and what blocks the event loop."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from vllm_harness._exchange.delivery import Delivery
from vllm_harness._regression.engines.answer import CostPoint, Curve
from vllm_harness._regression.results.cells import Cell
from vllm_harness._regression.results.mismatches import Mismatch, MismatchCode
from vllm_harness.extras.costs.growing import BLOCKED_S

MOST_EXPONENT = 1.3
QUADRATIC = 2.5
"""Above this exponent, a defect that takes quadratic time does not explain the curve."""
FITTED = 4
"""The number of lengths from which the growth is computed; the longest ones are used."""
LEAST_S = 0.0005
"""Shorter times cannot be distinguished from noise."""
MUCH_S = 0.05
"""If a curve's longest answer takes this long, times under `LEAST_S` are used as well."""
LEAST_BYTES = 100_000
ORDINARY_TOKENS = 16384
"""The size up to which an answer counts as ordinary."""


def time_exponent(curve: Curve) -> float | None:
    """The k for which the CPU time grows as the k-th power of the size; None if too few lengths can be used.

    If the longest answer takes long, shorter times count as `LEAST_S`, which gives a lower bound of k.
    """
    figures = [(point.size, point.cpu_s) for point in curve.points]
    usable = [(size, cpu_s) for size, cpu_s in figures if cpu_s >= LEAST_S]
    if len(usable) < FITTED and figures and figures[-1][1] >= MUCH_S:
        usable = [(size, max(cpu_s, LEAST_S)) for size, cpu_s in figures]
    return _exponent(usable)


def memory_exponent(curve: Curve) -> float | None:
    """The k for which the peak memory grows as the k-th power of the size; None if too few can be used."""
    return _exponent(
        (point.size, point.peak_bytes)
        for point in curve.points
        if point.peak_bytes is not None and point.peak_bytes >= LEAST_BYTES
    )


def _exponent(figures: Iterable[tuple[float, float]]) -> float | None:
    """The median of the log-log slopes between any two of the longest lengths; it resists one outlier."""
    logs = [(math.log(size), math.log(figure)) for size, figure in figures][-FITTED:]
    if len(logs) < FITTED:
        return None
    return median((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(logs, 2) if b[0] != a[0])


def curve_mismatches(curve: Curve) -> tuple[Mismatch, ...]:
    """The mismatches of a curve; a curve that was stopped with too few lengths counts as superlinear."""
    time, memory = time_exponent(curve), memory_exponent(curve)
    codes = []
    if (time or 0) > QUADRATIC:
        codes.append(MismatchCode.TIME_SUPERQUADRATIC)
    elif (curve.stopped_at is not None and time is None) or (time or 0) > MOST_EXPONENT:
        codes.append(MismatchCode.TIME_SUPERLINEAR)
    if (memory or 0) > MOST_EXPONENT:
        codes.append(MismatchCode.MEMORY_SUPERLINEAR)
    if blocked_at(curve) is not None:
        codes.append(MismatchCode.LOOP_BLOCKED)
    return tuple(map(Mismatch, codes))


def blocked_at(curve: Curve) -> CostPoint | None:
    """The point of the shortest ordinary answer that blocks the event loop; None if no such answer does."""
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
        family, tool_parser, reasoning_parser: the names of the family and of its parsers.
        whole, streamed: the exponent and the case of the steepest curve; None if no curve could be fitted.
        findings: the number of curves with mismatches, and the number of all curves.
        longest: the longest step for an ordinary answer, in seconds, and the answer's size and case.
    """

    family: str
    tool_parser: str | None
    reasoning_parser: str | None
    whole: tuple[float, str] | None
    streamed: tuple[float, str] | None
    findings: tuple[int, int]
    longest: tuple[float, int, str] | None


def family_costs(cells: Sequence[Cell]) -> Iterator[FamilyCost]:
    """Yields the cost of each family that has curves, in the order of the families' names."""
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
