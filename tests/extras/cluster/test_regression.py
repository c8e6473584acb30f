"""Parser regression on three nodes has the same results as on one machine, even after a kill."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.extras.cluster.cells import cells_of
from tests.extras.cluster.command import completed
from tests.extras.cluster.conftest import Begin
from tests.extras.cluster.leftovers import servers, wait_for
from vllm_harness.extras.cluster.places import placements_in

VLLM = "0.32.0"
FAMILIES = "step3,glm45"
COMMAND = ("regression", "--vllm", VLLM, "--parsers", FAMILIES)


def cells_placed(run: Path) -> Counter[str]:
    """The number of times that each cell of a run was run."""
    return Counter(placed.cell for placed in placements_in(run))


@pytest.mark.parametrize(
    "options",
    [("--cases", "canonical,forced"), ("--engine", "http", "--cases", "forced")],
    ids=["in process", "over HTTP"],
)
def test_the_cells_equal_those_of_one_machine(
    options: tuple[str, ...], begin: Begin, nodes: Any, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    one = begin(*COMMAND, "--run", str(here), *options)
    one_output, _ = one.communicate()
    several = begin(*COMMAND, "--run", str(there), *options, "--ray", nodes.address)
    output, _ = several.communicate()
    assert several.returncode == one.returncode, output + one_output
    assert cells_of(there) == cells_of(here)
    assert cells_placed(there) == Counter(f"{family}.{group}" for _, family, group in cells_of(here))


def test_a_killed_command_goes_on_and_leaves_no_server(begin: Begin, nodes: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ("--engine", "http", "--cases", "canonical,forced", "--ray", nodes.address)
    killed = begin(*COMMAND, "--run", str(run), *options)
    wait_for(lambda: (run / "places.jsonl").exists())
    finished = cells_placed(run)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    wait_for(lambda: not servers())
    resumed = completed("regression", "--resume", str(run), "--ray", nodes.address)
    assert "finished before" in resumed.stderr, resumed.stdout + resumed.stderr
    cells = [f"{family}.{group}" for _, family, group in cells_of(run)]
    assert len(cells) == len(set(cells)) >= 4
    ran = cells_placed(run)
    assert all(ran[cell] == 1 for cell in finished)
    wait_for(lambda: not servers())


def test_an_interrupt_leaves_no_server(begin: Begin, nodes: Any, tmp_path: Path) -> None:
    options = ("--engine", "http", "--cases", "forced", "--ray", nodes.address)
    command = begin(*COMMAND, "--run", str(tmp_path / "run"), *options)
    wait_for(servers)
    command.send_signal(signal.SIGINT)
    command.communicate()
    assert command.returncode != 0
    wait_for(lambda: not servers())
