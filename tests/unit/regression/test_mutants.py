"""Why mutants live on, and what counts of them; no vLLM is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from vllm_harness.errors import UsageError
from vllm_harness.regression.mutation.mutants import (
    Judged,
    Mutant,
    Reason,
    kept,
    load_reasons,
    parted,
    reasoned,
    score,
)
from vllm_harness.regression.mutation.mutants_over_http import drawn

FILE = "tool_parsers/x.py"
REASONS = (
    Reason(file=FILE, changes=("- a\n+ b", "- c\n+ d\n"), equivalent=True, why="the same"),
    Reason(file=FILE, changes=("- e\n+ f",), why="no case says it"),
    Reason(file="tool_parsers/y.py", changes=("- g\n+ h",), equivalent=True, why="another file's"),
)


def judged(change: str, fate: str) -> Judged:
    mutant = Mutant(line=1, statement=None, operator="AddNot", change=change, code="")
    return Judged.model_validate({"mutant": mutant, "fate": fate})


def test_the_share_leaves_out_what_nobody_could_notice() -> None:
    fates = {"- c\n+ d": "survived", "- e\n+ f": "differs", "- g\n+ h": "survived", "- i\n+ j": "killed"}
    told = reasoned([judged(change, fate) for change, fate in fates.items()], FILE, REASONS)
    assert [one.reason and one.reason.why for one in told] == ["the same", "no case says it", None, None]
    assert score(told) == (1, 3)


def test_a_mutant_that_is_killed_was_not_equivalent() -> None:
    (told,) = reasoned([judged("- a\n+ b", "killed")], FILE, REASONS)
    assert told.reason is None
    assert score([told]) == (1, 1)


def test_what_a_run_kept_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "kept.jsonl"
    one = judged("- a\n+ b", "killed")
    file.write_text(one.model_dump_json(exclude={"mutant": {"code"}}) + "\n")
    assert kept(file) == [one]
    assert kept(file)[0].mutant.told == (1, "AddNot", "- a\n+ b")
    file.write_text("nothing of ours\n")
    with pytest.raises(UsageError, match="has no mutants of an earlier run"):
        kept(file)
    with pytest.raises(UsageError, match="No such file"):
        kept(tmp_path / "none.jsonl")


def test_what_a_run_killed_is_not_asked_again() -> None:
    before = [judged("- a\n+ b", "killed"), judged("- c\n+ d", "differs")]
    new = judged("- e\n+ f", "survived").mutant
    dead, left = parted([before[1].mutant, new, before[0].mutant], before)
    assert dead == [before[0]]
    assert left == [before[1].mutant, new]


def test_servers_are_asked_of_what_lives_within_functions_and_could_be_noticed() -> None:
    fates = {"- a\n+ b": "survived", "- e\n+ f": "differs", "- i\n+ j": "killed", "- k\n+ l": "survived"}
    told = reasoned([judged(change, fate) for change, fate in fates.items()], FILE, REASONS)
    assert drawn(told, 5, seed=0) == []
    within = [
        one.model_copy(update={"mutant": one.mutant.model_copy(update={"statement": (1, 1)})}) for one in told
    ]
    assert {one.mutant.change for one in drawn(within, 5, seed=0)} == {"- e\n+ f", "- k\n+ l"}
    assert drawn(within, 1, seed=3) == drawn(within, 1, seed=3)
    assert len(drawn(within, 1, seed=3)) == 1


def test_no_change_has_two_reasons() -> None:
    changes = [(reason.file, change.strip()) for reason in load_reasons() for change in reason.changes]
    assert len(changes) == len(set(changes))


def test_a_malformed_reason_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mutants.yaml"
    path.write_text("reasons: [{file: x.py, changes: [a], whi: because}]")
    with pytest.raises(ValidationError, match="whi"):
        load_reasons(path)
