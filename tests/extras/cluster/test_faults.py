"""Shards lost with their machine run again, up to a maximum number of times; each loss is reported."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.extras.cluster import workloads
from tests.extras.cluster.conftest import NODE
from tests.extras.cluster.leftovers import wait_for
from tests.extras.cluster.workloads import Found, shard
from vllm_harness._machine.shard import Needs, Shard
from vllm_harness.extras.cluster.places import Placement
from vllm_harness.extras.cluster.ray_cluster import ClusterError, NotRun, RayCluster

Make = Callable[..., RayCluster]


def run(cluster: RayCluster, shards: list[Shard[Found]]) -> tuple[Counter[str], list[Any]]:
    """Runs shards; returns the number of results for each cell, and the errors."""
    found: Counter[str] = Counter()

    def count(result: Found) -> None:
        found[result[0]] += 1

    errors = cluster.run(shards, count)
    return found, errors


def once_each(shards: list[Shard[Found]]) -> Counter[str]:
    """A count of one for each cell of the shards."""
    return Counter(cell for each in shards for cell in each.cells)


def test_every_cell_returns_once_from_several_nodes(cluster: Make, placed: list[Placement]) -> None:
    shards = [shard(f"s{number}", workloads.quick) for number in range(30)]
    assert run(cluster(), shards) == (once_each(shards), [])
    assert {each.cell for each in placed} == set(once_each(shards))
    assert len({each.node for each in placed}) > 1


def test_results_stream_as_cells_finish(cluster: Make, tmp_path: Path) -> None:
    """Each cell waits until the result of the one before has arrived here."""
    shards = [shard("one", partial(workloads.after_the_last_result, tmp_path))]
    assert cluster().run(shards, lambda result: (tmp_path / result[0]).touch()) == []
    assert {path.name for path in tmp_path.iterdir()} == set(once_each(shards))


def test_the_memory_of_the_nodes_limits_what_runs_at_a_time(cluster: Make, tmp_path: Path) -> None:
    needs = Needs(cpus=0.1, memory_gib=3)  # so one fits on each node of 4 GiB
    shards = [shard(f"s{n}", partial(workloads.together, tmp_path, 3), 1, needs) for n in range(9)]
    assert run(cluster(), shards) == (once_each(shards), [])
    edges = []
    for line in (tmp_path / "intervals").read_text().splitlines():
        _, began, ended = line.split()
        edges += [(float(began), 1), (float(ended), -1)]
    running = most = 0
    for _, edge in sorted(edges):
        running += edge
        most = max(most, running)
    assert most == 3


@pytest.mark.parametrize("fault", [workloads.killed, workloads.disk_full])
def test_a_lost_shard_runs_again_without_finished_cells(
    fault: Callable[[], None], cluster: Make, tmp_path: Path, placed: list[Placement], lines: list[str]
) -> None:
    shards = [shard(f"s{number}", partial(workloads.once, tmp_path, fault)) for number in range(4)]
    assert run(cluster(), shards) == (once_each(shards), [])
    begun = {each.cell: each.begun for each in placed}
    assert [begun[f"s0.{cell}"] for cell in range(3)] == [1, 2, 2]
    assert sum("runs again" in line for line in lines) == 4


def test_a_shard_that_hangs_runs_again(cluster: Make, tmp_path: Path, lines: list[str]) -> None:
    shards = [shard("s", partial(workloads.once, tmp_path, workloads.hangs))]
    assert run(cluster(silence_timeout_s=10), shards) == (once_each(shards), [])
    assert any("silent" in line for line in lines)


def test_a_shard_that_never_finishes_a_cell_is_given_up(cluster: Make) -> None:
    shards = [shard("good", workloads.quick), shard("bad", workloads.always_killed)]
    found, (error,) = run(cluster(), shards)
    assert found == once_each(shards[:1])
    assert isinstance(error, NotRun)
    assert "bad: 3 cells did not run in 3 attempts" in error.message


def test_removing_a_node_loses_nothing(
    cluster: Make,
    nodes: Any,
    tmp_path: Path,
    placed: list[Placement],
    lines: list[str],
    ray_log: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Ray's own account of the lost node is in its log, and does not hide the harness's lines."""
    further = nodes.add_node(**{**NODE, "num_cpus": 8, "memory": 16 * 2**30})
    made = cluster()
    assert len(made.nodes()) == 4
    shards = [shard(f"s{number}", partial(workloads.slow, tmp_path, 0.5), 6) for number in range(16)]
    found: Counter[str] = Counter()
    removed: list[str] = []

    def remove_when_it_works(result: Found) -> None:
        found[result[0]] += 1
        name = made.name_of(further.node_id)
        if not removed and any(each.node == name for each in placed):
            removed.append(name)
            nodes.remove_node(further, allow_graceful=False)

    assert made.run(shards, remove_when_it_works) == []
    assert found == once_each(shards)
    assert f"was lost on {removed[0]}, and runs again" in "".join(lines)
    assert removed[0].endswith(f"/{further.node_id[:8]}")
    wait_for(lambda: ray_log.exists() and further.node_id in ray_log.read_text())
    assert "raylet" not in "".join(capfd.readouterr())


def test_a_node_is_prepared_once_and_left_out_if_that_fails(
    cluster: Make, tmp_path: Path, placed: list[Placement], lines: list[str]
) -> None:
    preparation = workloads.preparation(tmp_path, fails_first=True)
    work = partial(workloads.slow, tmp_path, 0.2)
    shards = [shard(f"s{number}", work, preparation=preparation) for number in range(12)]
    assert run(cluster(), shards) == (once_each(shards), [])
    assert len((tmp_path / "made").read_text().splitlines()) <= 3
    assert sum("runs nothing that needs it" in line for line in lines) == 1
    assert any("making it" in line for line in lines)
    (left_out,) = [line.split()[0] for line in lines if "runs nothing that needs it" in line]
    assert left_out not in {each.node for each in placed}


def test_a_shard_that_fits_on_no_node_is_refused_at_once(cluster: Make) -> None:
    shards = [shard("small", workloads.quick), shard("large", workloads.quick, needs=Needs(1, 64, 8))]
    found, (error,) = run(cluster(), shards)
    assert found == once_each(shards[:1])
    assert isinstance(error, ClusterError)
    assert "64 GiB, 8 GPUs" in error.message


def test_an_interrupt_ends_the_work_on_every_node(cluster: Make, tmp_path: Path) -> None:
    shards = [shard(f"s{number}", partial(workloads.with_a_child, tmp_path)) for number in range(6)]
    came: list[Found] = []

    def interrupt(result: Found) -> None:
        came.append(result)
        if len(came) == 6:
            while len(list(tmp_path.glob("child-*"))) < 6:
                time.sleep(0.1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cluster().run(shards, interrupt)
    children = {int(path.name.removeprefix("child-")) for path in tmp_path.glob("child-*")}
    ended = {int(path.name.removeprefix("ended-")) for path in tmp_path.glob("ended-*")}
    assert children == ended
    assert not [child for child in children if psutil.pid_exists(child)]
