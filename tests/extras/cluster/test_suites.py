"""The suites have the same results on three nodes as on one machine, case by case."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil

from tests.extras.cluster.command import completed
from tests.extras.cluster.conftest import Begin
from tests.extras.cluster.leftovers import orphaned_blocks, servers, wait_for
from vllm_harness._runs.report.run import read_run
from vllm_harness.extras.cluster.places import placements_in

COMMAND = ("run", "--model", "qwen3", "--lane", "scripted")
SELECTED = ("--", "-k", "test_responses_basics or test_responses_reasoning")


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return completed(*COMMAND, "--vllm", "0.32.0", "--output", str(folder), *options, *SELECTED)


def test_an_interrupt_leaves_no_server(begin: Begin, nodes: Any, tmp_path: Path) -> None:
    before, folder = orphaned_blocks(), tmp_path / "run"
    options = ("--vllm", "0.32.0", "--output", str(folder), "--ray", nodes.address)
    command = begin(*COMMAND, *options, *SELECTED)
    wait_for(servers)
    command.send_signal(signal.SIGINT)
    said, _ = command.communicate(timeout=120)
    assert command.returncode not in (0, 1), said
    wait_for(lambda: not servers() and not suites())
    assert orphaned_blocks() <= before


def suites() -> list[int]:
    """The process ids of the test suites that are running on the nodes."""
    return [
        each.pid
        for each in psutil.process_iter(["cmdline"])
        if "--vllm-output=" in " ".join(each.info["cmdline"] or ())
        and "vllm-harness-suite-" in " ".join(each.info["cmdline"] or ())
    ]


def cases_of(folder: Path) -> dict[tuple[str, str], tuple[Any, ...]]:
    """Target and id of each case -> its outcome, without the fields that differ between runs."""
    return {
        (case.target, case.id): (
            case.group,
            case.outcome,
            sorted(case.defects),
            sorted({each.code for each in case.findings}),
            case.attempts,
        )
        for case in read_run(folder).cases
    }


def test_the_cases_equal_those_of_one_machine(nodes: Any, tmp_path: Path) -> None:
    one = run(tmp_path / "here", "--at-once", "0")
    several = run(tmp_path / "there", "--ray", nodes.address)
    assert several.returncode == one.returncode == 0, several.stdout + several.stderr + one.stdout
    here = cases_of(tmp_path / "here")
    assert len(here) > 20
    assert cases_of(tmp_path / "there") == here
    assert all(case.node for case in read_run(tmp_path / "there").cases)


def test_finished_cells_do_not_run_again(nodes: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert run(folder, "--ray", nodes.address).returncode == 0
    before = cases_of(folder)
    places = folder / "places.jsonl"
    *_, last = places.read_text().splitlines(keepends=True)
    places.write_text(places.read_text().removesuffix(last))
    resumed = completed("run", "--resume", str(folder), "--ray", nodes.address)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert "suites: 1 to do" in resumed.stderr
    assert cases_of(folder) == before
    cells = [placed.cell for placed in placements_in(folder)]
    assert len(cells) == len(set(cells)) == 4
