"""Why mutants of parsers survive, and which survivors count; without vLLM."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pytest
from pydantic import ValidationError

from vllm_harness._errors import UsageError
from vllm_harness.extras.mutants.parsers.mutants import (
    Mutant,
    MutantResult,
    SurvivalReason,
    load_reasons,
    read_results,
    score,
    split_killed,
    stages_of,
    with_reasons,
)
from vllm_harness.extras.mutants.parsers.mutants_over_http import sample_survivors

FILE = "tool_parsers/x.py"
REASONS = (
    SurvivalReason(file=FILE, changes=("- a\n+ b", "- c\n+ d\n"), equivalent=True, why="the same"),
    SurvivalReason(file=FILE, changes=("- e\n+ f",), why="no case has it"),
    SurvivalReason(file="tool_parsers/y.py", changes=("- g\n+ h",), equivalent=True, why="another file's"),
)


def result(change: str, status: str) -> MutantResult:
    mutant = Mutant(line=1, statement=None, operator="AddNot", change=change, code="")
    return MutantResult.model_validate({"mutant": mutant, "status": status})


def test_the_score_leaves_out_equivalent_mutants() -> None:
    statuses = {"- c\n+ d": "survived", "- e\n+ f": "differs", "- g\n+ h": "survived", "- i\n+ j": "killed"}
    results = with_reasons([result(change, status) for change, status in statuses.items()], FILE, REASONS)
    assert [each.reason and each.reason.why for each in results] == ["the same", "no case has it", None, None]
    assert score(results) == (1, 3)


def test_stages_grow_from_one_case_set() -> None:
    @dataclass
    class Cases:
        group: str
        family: str

    sets = [Cases(group, family) for family in "abc" for group in ("canonical", "chunks", "forced")]
    stages = stages_of(sets)  # type: ignore[arg-type]
    assert [len(stage) for stage in stages] == [1, 2, 4, 2]
    assert [(each.group, each.family) for each in chain(*stages[:3])] == [
        *(("canonical", family) for family in "abc"),
        *(("chunks", family) for family in "abc"),
        ("forced", "a"),
    ]
    assert stages_of([]) == []


def test_a_mutant_that_is_killed_was_not_equivalent() -> None:
    (only,) = with_reasons([result("- a\n+ b", "killed")], FILE, REASONS)
    assert only.reason is None
    assert score([only]) == (1, 1)


def test_stored_results_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    written = result("- a\n+ b", "killed")
    text = written.model_dump_json(by_alias=True, exclude={"mutant": {"code"}})
    assert '"fate":"killed"' in text
    file.write_text(text + "\n")
    assert read_results(file) == [written]
    assert read_results(file)[0].mutant.key == (1, "AddNot", "- a\n+ b")
    file.write_text("nothing of ours\n")
    with pytest.raises(UsageError, match=r"results\.jsonl:1: .*result of a mutant"):
        read_results(file)
    with pytest.raises(UsageError, match="does not exist"):
        read_results(tmp_path / "none.jsonl")


def test_killed_mutants_do_not_run_again() -> None:
    earlier = [result("- a\n+ b", "killed"), result("- c\n+ d", "differs")]
    new = result("- e\n+ f", "survived").mutant
    killed, left = split_killed([earlier[1].mutant, new, earlier[0].mutant], earlier)
    assert killed == [earlier[0]]
    assert left == [earlier[1].mutant, new]


def test_the_sample_has_noticeable_survivors_within_functions() -> None:
    statuses = {"- a\n+ b": "survived", "- e\n+ f": "differs", "- i\n+ j": "killed", "- k\n+ l": "survived"}
    results = with_reasons([result(change, status) for change, status in statuses.items()], FILE, REASONS)
    assert sample_survivors(results, 5, seed=0) == []
    within = [
        each.model_copy(update={"mutant": each.mutant.model_copy(update={"statement": (1, 1)})})
        for each in results
    ]
    assert {each.mutant.change for each in sample_survivors(within, 5, seed=0)} == {"- e\n+ f", "- k\n+ l"}
    assert sample_survivors(within, 1, seed=3) == sample_survivors(within, 1, seed=3)
    assert len(sample_survivors(within, 1, seed=3)) == 1


def test_no_change_has_two_reasons() -> None:
    changes = [(reason.file, change.strip()) for reason in load_reasons() for change in reason.changes]
    assert len(changes) == len(set(changes))


def test_a_malformed_reason_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mutants.yaml"
    path.write_text("reasons: [{file: x.py, changes: [a], whi: because}]")
    with pytest.raises(ValidationError, match="whi"):
        load_reasons(path)
