"""Parser regression on three nodes finds what it finds on one machine, case by case, whatever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.leftovers import servers, wait_for
from vllm_harness.executors.places import placed_in
from vllm_harness.regression.results.cells import Cell, RegressionRun

VLLM = "0.32.0"
FAMILIES = "step3,glm45"
COMMAND = (sys.executable, "-m", "vllm_harness.cli.main", "regression", "--vllm", VLLM, "--parsers", FAMILIES)
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(nodes: Any) -> Start:
    """Starts the command, in a process group of its own; with no folder to ship to, the nodes being here."""

    def begin(run: Path, *options: str, command: tuple[str, ...] = COMMAND) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*command, "--run", str(run), *options],
            env={**os.environ, "VLLM_HARNESS_RAY_SHIP": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    return begin


def cells_of(run: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The cells of a run without what no two runs share: how long they took."""
    return {
        (cell.family, cell.group): cell.model_dump(exclude={"seconds"})
        for cell in RegressionRun(run).cells()
        if isinstance(cell, Cell)
    }


def cells_placed(run: Path) -> Counter[str]:
    """How often each cell of a run ran."""
    return Counter(placed.cell for placed in placed_in(run))


@pytest.mark.parametrize(
    "options",
    [("--cases", "canonical,forced"), ("--engine", "http", "--cases", "forced")],
    ids=["in process", "over HTTP"],
)
def test_the_cells_are_those_of_one_machine(
    options: tuple[str, ...], start: Start, nodes: Any, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    one = start(here, *options)
    one_output, _ = one.communicate()
    several = start(there, *options, "--ray", nodes.address)
    output, _ = several.communicate()
    assert several.returncode == one.returncode, output + one_output
    assert cells_of(there) == cells_of(here)
    assert cells_placed(there) == Counter(f"{family}.{group}" for family, group in cells_of(here))


def test_a_killed_command_goes_on_and_leaves_no_server(start: Start, nodes: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ("--engine", "http", "--cases", "canonical,forced", "--ray", nodes.address)
    killed = start(run, *options)
    wait_for(lambda: (run / "places.jsonl").exists())
    finished = cells_placed(run)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    wait_for(lambda: not servers())
    resume = (sys.executable, "-m", "vllm_harness.cli.main", "regression")
    resumed = subprocess.run(
        [*resume, "--resume", str(run), "--ray", nodes.address],
        env={**os.environ, "VLLM_HARNESS_RAY_SHIP": "0"},
        capture_output=True,
        text=True,
    )
    assert "finished before" in resumed.stderr, resumed.stdout + resumed.stderr
    cells = [f"{family}.{group}" for family, group in cells_of(run)]
    assert len(cells) == len(set(cells)) >= 4
    ran = cells_placed(run)
    assert all(ran[cell] == 1 for cell in finished)
    wait_for(lambda: not servers())


def test_an_interrupt_leaves_no_server(start: Start, nodes: Any, tmp_path: Path) -> None:
    command = start(tmp_path / "run", "--engine", "http", "--cases", "forced", "--ray", nodes.address)
    wait_for(servers)
    command.send_signal(signal.SIGINT)
    command.communicate()
    assert command.returncode != 0
    wait_for(lambda: not servers())
