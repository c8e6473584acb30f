"""Mutants judged on the nodes get the same statuses as on one machine, and none is judged twice."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.extras.cluster.command import completed
from tests.extras.cluster.leftovers import servers, wait_for
from vllm_harness._environments import resolve
from vllm_harness.extras.cluster.places import placements_in
from vllm_harness.extras.review.coverage import TestLines, coverage_file
from vllm_harness.extras.review.serving import serving_files

VLLM = "0.32.0"
KILLED, SURVIVES = "responses-incomplete-reason", "responses-seed-dropped"
TESTS = ("test_max_output_tokens_gives_incomplete", "test_not_stored_is_not_found")
COMMAND = ("mutants", "serving", "--vllm", VLLM, "--model", "qwen3")


@pytest.fixture
def known_coverage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored coverage by which two tests run every line of vLLM's serving code, so none is measured."""
    monkeypatch.setenv("VLLM_HARNESS_STATE", str(tmp_path / "state"))
    environment = resolve(VLLM, "cpu", create=True)
    assert environment.package is not None
    lines = dict.fromkeys(serving_files(environment.package), "1-9999")
    kept = coverage_file(environment)
    kept.parent.mkdir(parents=True)
    with kept.open("w") as file:
        for test in TESTS:
            ran = TestLines(
                test=f"tests/behaviours/test_responses_basics.py::{test}[scripted-qwen3]",
                target="scripted-qwen3",
                outcome="passed",
                seconds=0.5,
                lines=lines,
            )
            print(ran.model_dump_json(), file=file)


def judged(keep: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return completed(*COMMAND, "--output", str(keep), "--only", KILLED, "--only", SURVIVES, *options)


def statuses(keep: Path) -> dict[str, tuple[Any, ...]]:
    """Mutant -> its stored status, the test that decided it, and counts, but no times."""
    lines = [json.loads(line) for line in keep.read_text().splitlines()]
    assert len(lines) == len({line["id"] for line in lines}), "a mutant was judged twice"
    return {line["id"]: (line["fate"], line.get("by"), line.get("ran"), line.get("of")) for line in lines}


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("known_coverage")
def test_statuses_equal_those_of_one_machine(nodes: Any, tmp_path: Path) -> None:
    here, there = tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    one = judged(here, "--jobs", "1")
    several = judged(there, "--ray", nodes.address)
    assert several.returncode == one.returncode == 0, several.stdout + several.stderr + one.stderr
    assert statuses(there) == statuses(here)
    assert {name: status for name, (status, *_) in statuses(here).items()} == {
        KILLED: "killed",
        SURVIVES: "survived",
    }
    assert Counter(each.cell for each in placements_in(tmp_path / "there")) == {KILLED: 1, SURVIVES: 1}
    wait_for(lambda: not servers())
    again = judged(there, "--ray", nodes.address)
    assert again.returncode == 0, again.stderr
    assert len(statuses(there)) == 2
