"""The tables of gateways and engines in the manual match the registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import load_defects

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "measurements.md"
HEAD = "| {} | what it does | judged | rules | upstream |\n|---|---|---|---|---|\n"
ENGINES = ("llama.cpp",)
CLASSES = ("defect", "deviation", "feature gap", "arguable")


def _row(defect: Defect) -> str:
    rules = ", ".join(dict.fromkeys(place.code for place in defect.deviations))
    gateway = f"{defect.product} {defect.versions.removeprefix('==')}"
    upstream = defect.upstream.reference or "none found"
    return f"| {gateway} | {defect.title} (`{defect.id}`) | {defect.kind} | {rules} | {upstream} |\n"


def table(*, engines: bool) -> str:
    """Returns the table of the registry's entries about gateways, or about engines, the worst first."""
    every = (defect for defect in load_defects().values() if defect.product)
    known = [defect for defect in every if (defect.product in ENGINES) is engines]
    known.sort(key=lambda defect: (defect.product, CLASSES.index(defect.kind), defect.title))
    return HEAD.format("engine" if engines else "gateway") + "".join(map(_row, known))


@pytest.mark.parametrize("engines", [False, True])
def test_page_matches_registry(engines: bool) -> None:
    expected = table(engines=engines)
    assert expected in PAGE.read_text(), f"{PAGE} should have this table:\n{expected}"
