"""The faults in the table trigger at least three rules of each band, or the table says why none can."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.extras.mutants.rule_faults import band_of, fired, load_faults
from tests.regression.asks import Ask
from vllm_harness._protocol.rules import RULES

LEAST = 3
TABLE = load_faults()
SHOWN = {code for faults in TABLE.servers.values() for codes in fired(faults).values() for code in codes}


def test_each_band_has_three_rules_that_fire_or_a_reason() -> None:
    shown = defaultdict(set)
    for code in SHOWN:
        shown[band_of(code)].add(code)
    enough = {band for band, codes in shown.items() if len(codes) >= LEAST}
    assert enough | set(TABLE.elsewhere) == {band_of(code) for code in RULES}
    assert not enough & set(TABLE.elsewhere)


@pytest.mark.parametrize("tens", ["RS32", "RS41"], ids=["annotations", "progress"])
def test_all_rules_about_rare_events_fire(tens: str) -> None:
    """All rules about rare events must fire; other rules in the same bands must not hide a missing one."""
    assert {code for code in RULES if code.startswith(tens)} <= SHOWN


@pytest.mark.parametrize("api", ["responses", "chat"])
def test_three_rules_fire_on_refusals(api: str) -> None:
    """No rule is about refusals alone, so other rules must detect their faults."""
    shown = {
        code
        for ask, codes in fired(TABLE.servers["refused"]).items()
        for code in codes
        if Ask.named(ask).api == api
    }
    assert len(shown) >= LEAST


def test_each_code_of_an_answer_belongs_to_one_fault() -> None:
    """If two faults had the same code, one without an effect could go unnoticed."""
    for faults in TABLE.servers.values():
        claims = [(ask, code) for fault in faults for ask, codes in fault.fires.items() for code in codes]
        assert len(set(claims)) == len(claims)
