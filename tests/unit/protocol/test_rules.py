"""Every rule finds its bad example, says nothing about its good one, and has a current page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import vllm_harness.protocol
from vllm_harness.protocol.explain import findings_of, pages
from vllm_harness.protocol.rules import AREAS, RULES

PAGES = Path(__file__).parents[3] / "docs" / "rules"


@pytest.mark.parametrize("code", RULES)
def test_bad_example_is_found(code: str) -> None:
    found = [finding for finding in findings_of(RULES[code].bad) if finding.code == code]
    assert found, "the rule does not find its bad example"
    assert RULES[code].severity in {finding.severity for finding in found}


@pytest.mark.parametrize("code", RULES)
def test_good_example_is_clean(code: str) -> None:
    found = findings_of(RULES[code].good)
    assert code not in [finding.code for finding in found]
    assert not [str(finding) for finding in found if finding.counts]


def test_every_code_in_the_source_is_a_rule_and_the_other_way_round() -> None:
    folder = Path(vllm_harness.protocol.__file__).parent
    used = set()
    for path in folder.glob("*.py"):
        if not path.name.startswith("rule"):
            used |= set(re.findall(r'"((?:SE|RS|RO|IT|CC|CB|CU|MS|MB|CV|CP|KD)\d{3})"', path.read_text()))
    assert used - set(RULES) == set()
    assert set(RULES) - used == set()


def test_every_area_is_named() -> None:
    assert {code[:2] for code in RULES} == set(AREAS)


def test_pages_are_current() -> None:
    written = {path.name: path.read_text() for path in PAGES.glob("*.md")}
    assert written == pages(), "run: vllm-harness explain --write docs/rules"
