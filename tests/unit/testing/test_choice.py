"""The cases of a short run: some cases of each test and one of each behaviour, drawn with a seed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.choice import Case, choose, few, uncovered
from tests.left_out import LeftOut

BOTH = ("gpt-oss", "qwen3")
MANY = [
    Case(f"t.py::test_{test}[{number}]", f"t.py::test_{test}", BOTH) for test in "ab" for number in range(9)
]


@pytest.mark.parametrize("most", [1, 2, 5])
def test_each_test_gets_at_most_so_many_cases(most: int) -> None:
    chosen = choose(MANY, most, seed=1)
    assert Counter(name.split("[")[0] for name in chosen) == {"t.py::test_a": most, "t.py::test_b": most}


def test_without_a_limit_all_cases_are_chosen() -> None:
    assert choose(MANY, 0, seed=1).keys() == {case.name for case in MANY}


def test_a_test_with_few_cases_keeps_them_all() -> None:
    assert set(choose(MANY[:1], 2, seed=1)) == {MANY[0].name}


def test_every_behaviour_gets_a_case() -> None:
    marked = [Case(f"t[{n}]", "t", BOTH, frozenset({f"VR-{n:03}"})) for n in range(20)]
    for seed in range(20):
        assert uncovered([f"VR-{n:03}" for n in range(20)], marked, choose(marked, 2, seed)) == []


def test_a_covered_behaviour_adds_no_case() -> None:
    marked = [Case(f"t[{n}]", "t", BOTH, frozenset({"VR-001"})) for n in range(20)]
    assert len(choose(marked, 2, seed=3)) == 2


def test_behaviours_without_a_case_are_named() -> None:
    case = Case("t", "t", BOTH, frozenset({"VR-001"}))
    assert uncovered(["VR-001", "VR-002", "VR-000"], [case], {"t": "qwen3"}) == ["VR-000", "VR-002"]
    assert uncovered(["VR-001"], [case], {}) == ["VR-001"]


def test_a_seed_always_gives_the_same_choice() -> None:
    assert choose(MANY, 2, seed=7) == choose(list(reversed(MANY)), 2, seed=7)


def test_in_the_end_each_case_runs_on_each_model() -> None:
    seen = {pair for seed in range(100) for pair in choose(MANY, 2, seed).items()}
    assert seen == {(case.name, model) for case in MANY for model in BOTH}


def test_a_case_goes_to_a_model_that_can_run_it() -> None:
    only = [Case(f"t[{n}]", "t", (BOTH[n % 2],)) for n in range(10)]
    for seed in range(10):
        assert choose(only, 0, seed) == {case.name: case.models[0] for case in only}


def test_left_out_cases_are_counted_by_target_and_reason(tmp_path: Path) -> None:
    out = LeftOut(Counter({"scripted-qwen3": 5, "scripted-gpt-oss": 4}), uncovered=["VR-014"])
    for case, reason in [("a", "not drawn"), ("b", "not drawn"), ("c", "unsettled"), ("a", "slow")]:
        out.add("scripted-qwen3", case, reason)
    out.add("live-qwen3", "a", "not drawn")
    out.forget("live-qwen3")
    assert out.lines() == [
        "scripted-qwen3: 2 of 5 cases run; left out: 2 not drawn, 1 unsettled",
        "behaviours and reported defects without a case: VR-014",
    ]
    out.write(tmp_path / "left-out.json")
    written = json.loads((tmp_path / "left-out.json").read_text())
    assert written["cases"] == {"scripted-qwen3": {"a": "not drawn", "b": "not drawn", "c": "unsettled"}}


def test_few_draws_some_and_in_the_end_all() -> None:
    names = [f"name {number}" for number in range(7)]
    drawn = [few(names, 3, seed) for seed in range(50)]
    assert {len(names) for names in drawn} == {3}
    assert frozenset().union(*drawn) == {*names}


ALIKE = """
import pytest

@pytest.mark.drawn("alike", 1)
@pytest.mark.parametrize("number", [1, 2])
def test_one(number):
    pass

@pytest.mark.drawn("alike", 1)
@pytest.mark.parametrize("number", [1, 2])
def test_other(number):
    pass

def test_without_a_group():
    pass
"""


def test_a_short_run_draws_whole_tests_of_a_group(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(ALIKE)
    short = pytester.runpytest_inprocess("-p", "no:asyncio", "-p", "tests.selection", "--seed=3")
    short.assert_outcomes(passed=3, skipped=2)
    short.stdout.fnmatch_lines(["alike: 1 of 2 tests, drawn with --seed 3"])
    whole = pytester.runpytest_inprocess(
        "-p", "no:asyncio", "-p", "tests.selection", "--seed=3", "--vllm-slow"
    )
    whole.assert_outcomes(passed=5)
