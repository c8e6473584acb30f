"""The page's table of gateways is the registry's."""

from __future__ import annotations

from pathlib import Path

from vllm_harness.defects.entry import Defect
from vllm_harness.defects.registry import load_defects

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "gateway.md"
HEAD = "| gateway | what it does | judged | rules | upstream |\n|---|---|---|---|---|\n"
CLASSES = ("defect", "deviation", "feature gap", "arguable")


def _row(defect: Defect) -> str:
    rules = ", ".join(dict.fromkeys(place.code for place in defect.deviations))
    gateway = f"{defect.product} {defect.versions.removeprefix('==')}"
    upstream = defect.upstream.reference or "none found"
    return f"| {gateway} | {defect.title} (`{defect.id}`) | {defect.kind} | {rules} | {upstream} |\n"


def table() -> str:
    """The differences of all gateways that the registry knows of, worst first."""
    known = [defect for defect in load_defects().values() if defect.product]
    known.sort(key=lambda defect: (defect.product, CLASSES.index(defect.kind), defect.title))
    return HEAD + "".join(map(_row, known))


def test_the_page_tells_what_the_registry_knows() -> None:
    assert table() in PAGE.read_text(), f"the table of {PAGE} is to be:\n{table()}"
