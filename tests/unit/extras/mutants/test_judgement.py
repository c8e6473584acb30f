"""Which tests judge a mutant, in which order, and what follows from their outcomes; without vLLM."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from vllm_harness._errors import UsageError
from vllm_harness.extras.mutants.choice import choose
from vllm_harness.extras.mutants.coverage_plugin import lines_of
from vllm_harness.extras.mutants.importers import all_importers, direct_importers, importers_of
from vllm_harness.extras.mutants.judge import JudgedMutant, read_judged, verdict
from vllm_harness.extras.mutants.mutant import ServingMutant
from vllm_harness.extras.mutants.plans import JUDGING, JUDGING_PLAN, JudgingPlan, TestOutcome
from vllm_harness.extras.mutants.table import MutantTally, survivors, tallies, tally
from vllm_harness.extras.review.coverage import Coverage, Outcome, TestLines, lines_run, read_coverage

FILE = "entrypoints/anthropic/serving.py"


def ran(
    test: str, lines: str = "1-9", seconds: float = 0.1, outcome: Outcome = "passed", model: str = "qwen3"
) -> TestLines:
    return TestLines(
        test=test, target=f"scripted-{model}", outcome=outcome, seconds=seconds, lines={FILE: lines}
    )


def names(tests: list[TestLines]) -> list[str]:
    return [test.test for test in tests]


def test_tests_are_selected_by_the_lines_that_they_run() -> None:
    coverage = Coverage(
        [
            ran("a", "3-5, 9"),
            ran("b", "12"),
            ran("c", "4", outcome="known"),
            ran("d", "4", outcome="failed"),
            ran("e", "4", outcome="skipped"),
        ]
    )
    assert names(coverage.running(FILE, (5, 8))) == ["a"]
    assert names(coverage.running(FILE, (4, 4))) == ["a", "c"]
    assert names(coverage.running(FILE, (6, 8))) == []
    assert names(coverage.running(FILE, None)) == ["a", "b", "c"]
    assert names(coverage.running("another.py", None)) == []
    assert "b" in coverage
    assert len(coverage) == 5


def test_startup_lines_are_judged_by_all_tests_of_the_file() -> None:
    first = ran("a", "3").model_copy(update={"start": {FILE: "3, 20-30"}})
    coverage = Coverage([first, ran("b", "12")])
    assert names(coverage.running(FILE, (25, 25))) == ["a", "b"]
    assert names(coverage.running(FILE, (3, 3))) == ["a"]
    assert names(coverage.running(FILE, (40, 40))) == []


def test_stored_coverage_is_read_and_the_last_line_counts(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    assert len(read_coverage(path)) == 0
    path.write_text("".join(f"{ran('a', lines).model_dump_json()}\n" for lines in ("1", "2")))
    assert names(read_coverage(path).running(FILE, (2, 2))) == ["a"]
    assert names(read_coverage(path).running(FILE, (1, 1))) == []
    path.write_text("nothing of ours\n")
    with pytest.raises(UsageError, match=r"lines\.jsonl:1: not a valid coverage of a test"):
        read_coverage(path)


def test_each_test_runs_one_case_before_any_runs_two() -> None:
    tests = [ran("t.py::a[1]"), ran("t.py::a[2]", seconds=0.2), ran("t.py::b[1]", seconds=1.0)]
    assert names(choose(tests)) == ["t.py::a[1]", "t.py::b[1]", "t.py::a[2]"]
    assert names(choose(tests, most=2)) == ["t.py::a[1]", "t.py::b[1]"]


def test_killers_of_the_same_file_run_first_and_slow_tests_last() -> None:
    tests = [ran("t.py::a", seconds=4.0), ran("s.py::b", seconds=5.0), ran("t.py::c"), ran("t.py::d")]
    assert names(choose(tests, kills={"t.py::d": 1})) == ["t.py::d", "t.py::c", "s.py::b", "t.py::a"]


def test_tests_that_run_most_of_the_change_come_first() -> None:
    tests = [ran("t.py::a", "1-2"), ran("t.py::b", "1-5, 9"), ran("t.py::c", "4-6", seconds=0.5)]
    depth = partial(lines_run, file=FILE, span=(2, 5))
    assert [depth(test) for test in tests] == [1, 4, 2]
    assert names(choose(tests, depth=depth)) == ["t.py::b", "t.py::c", "t.py::a"]
    assert names(choose(tests, kills={"t.py::a": 1}, depth=depth))[0] == "t.py::a"
    assert lines_run(tests[0], FILE, None) == 0


def test_names_with_words_of_the_change_take_turns_with_deep_coverage() -> None:
    tests = [
        ran("t.py::wrong[empty cache salt]", "1"),
        ran("t.py::wrong[cache of a block]", "1"),
        *(ran(f"t.py::other_{letter}", "1-2") for letter in "abc"),
    ]
    depth = partial(lines_run, file=FILE, span=(1, 2))
    about = "- validate_cache_salts(data)"
    assert names(choose(tests, depth=depth, about=about)) == [
        *("t.py::wrong[empty cache salt]", "t.py::other_a", "t.py::wrong[cache of a block]"),
        *("t.py::other_b", "t.py::other_c"),
    ]


def test_texts_with_a_name_of_the_change_take_their_turn() -> None:
    tests = [*(ran(f"t.py::other_{letter}", "1-2") for letter in "abcd"), ran("t.py::passed_on[all]", "1")]
    texts = {test.test: "def test(): ask(top_p=0.5)" for test in tests} | {
        "t.py::passed_on[all]": "{'min_p': 0.05}"
    }
    depth = partial(lines_run, file=FILE, span=(1, 2))
    chosen = names(choose(tests, depth=depth, about="- min_p=self.min_p,", texts=texts))
    assert chosen[:2] == ["t.py::passed_on[all]", "t.py::other_a"]


def test_a_model_is_served_once_and_only_if_needed() -> None:
    tests = [
        ran("t.py::a[qwen3]", seconds=0.2),
        ran("t.py::a[gpt-oss]", model="gpt-oss"),
        ran("t.py::b[gpt-oss]", model="gpt-oss"),
        ran("t.py::c[qwen3]"),
        ran("t.py::d[qwen3]"),
    ]
    assert names(choose(tests, most=4)) == [
        *("t.py::c[qwen3]", "t.py::d[qwen3]", "t.py::a[qwen3]"),
        "t.py::b[gpt-oss]",
    ]


@pytest.mark.parametrize(
    ("outcomes", "loaded", "status", "by"),
    [
        ([], True, "survived", ""),
        ([("a", "passed"), ("b", "failed"), ("c", "failed")], True, "killed", "b"),
        ([("a", "gone"), ("b", "known")], True, "noticed", "a"),
        ([("a", "gone"), ("b", "failed")], True, "killed", "b"),
        ([("a", "failed")], False, "not judged", "a"),
        ([("a", "passed")], False, "not judged", ""),
    ],
)
def test_the_first_failure_decides_if_a_server_loaded_the_mutant(
    outcomes: list[tuple[str, Outcome]], loaded: bool, status: str, by: str
) -> None:
    of_tests = [TestOutcome(test=test, outcome=outcome) for test, outcome in outcomes]
    fields = verdict(of_tests, loaded=loaded)
    assert (fields["status"], fields.get("by", "")) == (status, by)


def test_a_mutant_that_cannot_be_imported_is_killed() -> None:
    why = "code.py cannot be imported as vllm.x: NameError('a')"
    fields = verdict([TestOutcome(test="a", outcome="failed", why=why)], loaded=False)
    assert fields["status"] == "killed"


def judged(id_: str, status: str, file: str = FILE, kind: str = "by hand") -> JudgedMutant:
    return JudgedMutant.model_validate(
        {"id": id_, "file": file, "kind": kind, "digest": "0", "status": status}
    )


def mutant(id_: str, equivalent: str | None = None) -> ServingMutant:
    return ServingMutant(id_, FILE, "by hand", "", "", None, equivalent=equivalent)


def test_equivalent_mutants_do_not_count() -> None:
    results = [
        *(judged("a", "killed"), judged("b", "survived"), judged("c", "unreached")),
        *(judged("d", "noticed"), judged("e", "not judged"), judged("f", "survived"), judged("g", "killed")),
    ]
    mutants = {each.id: mutant(each.id, "the same" if each.id in "fg" else None) for each in results}
    counts = tally(results, mutants)
    assert counts == MutantTally(killed=2, noticed=1, survived=2, equivalent=1, not_judged=1)
    assert (counts.counted, counts.score) == (5, 40.0)
    assert [each.id for each in survivors(results, mutants)] == ["b", "c", "d", "e"]
    assert MutantTally().score == 100.0


def test_results_are_tallied_by_file_and_by_kind() -> None:
    results = [
        judged("a", "killed", "y.py", "reverted"),
        judged("b", "survived", "x.py"),
        judged("c", "killed", "x.py"),
    ]
    mutants = {each.id: mutant(each.id) for each in results}
    assert list(tallies(results, mutants)) == ["x.py", "y.py"]
    assert tallies(results, mutants, by=lambda each: each.kind)["reverted"] == MutantTally(killed=1)


def test_stored_results_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    assert read_judged(path) == []
    text = judged("a", "killed").model_dump_json(by_alias=True)
    assert '"fate":"killed"' in text
    path.write_text(text + "\n")
    assert read_judged(path) == [judged("a", "killed")]
    path.write_text("{}\n")
    with pytest.raises(UsageError, match=r"results\.jsonl:1: .*result of a mutant"):
        read_judged(path)


def test_the_bytes_that_servers_set_are_lines() -> None:
    memory = bytearray(30)
    for place in (1, 2, 4, 25):
        memory[place] = 1
    assert lines_of(bytes(memory), {"a.py": 0, "b.py": 10, "c.py": 20}) == {"a.py": "1-2, 4", "c.py": "5"}


def test_importers_are_found_through_others_but_not_in_functions(tmp_path: Path) -> None:
    code = {
        "__init__.py": "",
        "low.py": "X = 1\n",
        "middle.py": "from vllm.low import X\n",
        "high.py": "import vllm.middle\n",
        "lazy.py": "def f():\n    from vllm.low import X\n",
        "typed_too.py": "import typing\nif typing.TYPE_CHECKING:\n    from vllm.low import X\n",
        "typed.py": "if TYPE_CHECKING:\n    from vllm.low import X\n",
        "beside.py": "from vllm import low\n",
        "inside.py": "class A:\n    from .low import X\n",
    }
    for name, text in code.items():
        (tmp_path / name).write_text(text)
    direct = direct_importers(tmp_path)
    assert importers_of(tmp_path, tmp_path / "kept.json") == direct
    assert all_importers("vllm.low", direct) == ["vllm.beside", "vllm.high", "vllm.inside", "vllm.middle"]
    assert all_importers("vllm.lazy", direct) == []


def test_a_test_that_no_longer_exists_decides_nothing(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored coverage may name tests that no longer exist; the other tests then judge the mutant."""
    pytester.makepyfile(test_one="def test_left():\n    pass\n\n\ndef test_of_no_plan():\n    pass\n")
    outcomes, file = pytester.path / "outcomes", pytester.path / "plan.json"
    plan = JudgingPlan(tests=("test_one.py::test_gone", "test_one.py::test_left"), outcomes=outcomes)
    file.write_text(plan.model_dump_json())
    monkeypatch.setenv(JUDGING_PLAN, str(file))
    ended = pytester.runpytest_inprocess("-p", "no:asyncio", "-p", JUDGING)
    ended.assert_outcomes(passed=1, deselected=1)
    written = [TestOutcome.model_validate_json(line) for line in outcomes.read_text().splitlines()]
    assert [each.outcome for each in written] == ["skipped", "passed"]
    assert verdict(written, loaded=True) == {"status": "survived"}
