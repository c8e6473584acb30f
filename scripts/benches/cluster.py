"""What Ray costs a cell, and how near runs over a simulated cluster are to the lower bound."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.unit.extras.cluster.simulation import lower_bound, shards_of, simulate  # noqa: E402
from vllm_harness._machine.shard import Needs, Shard  # noqa: E402
from vllm_harness.extras.cluster.dispatch import NodeState  # noqa: E402
from vllm_harness.extras.cluster.places import Placement, Places  # noqa: E402
from vllm_harness.extras.cluster.ray_cluster import RayCluster, connected  # noqa: E402

DURATIONS = ROOT / "tests" / "unit" / "executors" / "durations.json"
NODE = {"num_cpus": 2, "memory": 4 * 2**30, "object_store_memory": 80 * 2**20}
SLOTS_A_NODE = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulated", action="store_true", help="only the simulated cluster")
    parser.add_argument("--nodes", type=int, default=200, help="of the simulated cluster")
    parser.add_argument("--cells", type=int, default=50_000, help="of the simulated run")
    arguments = parser.parse_args()
    simulated(arguments.nodes, arguments.cells)
    if not arguments.simulated:
        cost_of_ray(cells=200, cell_s=0.2)


def simulated(nodes: int, cells: int) -> None:
    """Prints the makespan of a simulated run, its lower bound, and what the driver's own code takes."""
    shards = shards_of(cells, json.loads(DURATIONS.read_text()), seed=0)
    begun = time.perf_counter()
    memory = peak_mib()
    found = simulate(shards, [NodeState(f"node {n}", Needs(SLOTS_A_NODE, 16)) for n in range(nodes)])
    took = time.perf_counter() - begun
    bound = lower_bound(shards, nodes * SLOTS_A_NODE)
    assert len(set(found.cells)) == len(found.cells) == cells
    print(f"simulated: {cells} cells in {len(shards)} shards on {nodes} nodes of {SLOTS_A_NODE} slots")
    print(f"  makespan {found.makespan:.1f} s, lower bound {bound:.1f} s: {found.makespan / bound:.3f} of it")
    print(f"  {found.held / len(shards):.0%} of the shards ran where their fork server was up")
    print(f"  choosing took {took:.2f} s, {took / len(shards) * 1e6:.0f} us a shard")
    print(f"  memory: {peak_mib() - memory:.0f} MiB more than with all shards at the start")
    with tempfile.TemporaryDirectory() as folder:
        places = Places(Path(folder))
        begun = time.perf_counter()
        for number, cell in enumerate(found.cells):
            places.add(Placement(cell, cell.partition(".")[0], f"node {number % nodes}", 1.0, 1, number))
        took = time.perf_counter() - begun
        print(f"  places.jsonl: {took:.2f} s for {cells} lines, {took / cells * 1e6:.0f} us each")


def peak_mib() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def wait(seconds: float, cells: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Cells that take a time and no processor; each gives what it truly took."""
    for cell in cells:
        begun = time.perf_counter()
        time.sleep(seconds)
        yield cell, time.perf_counter() - begun


def cost_of_ray(cells: int, cell_s: float) -> None:
    """Prints what a cell takes more on a cluster than by itself, one cell to a shard, all slots busy."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    try:
        for _ in range(2):
            cluster.add_node(**NODE)
        with connected(cluster.address, runtime_env={}) as ray:
            executor = RayCluster(ray, print)
            slots = 3 * int(NODE["num_cpus"])
            run(executor, 4 * slots, 0.5)  # every worker has started, and has imported the harness
            begun = time.perf_counter()
            own = run(executor, cells, cell_s)
            wall = time.perf_counter() - begun
            added = (wall * slots - own) / cells
            print(f"Ray: {cells} cells of {cell_s} s in {wall:.2f} s on {slots} slots")
            for name, seconds in (("this cell", cell_s), ("a cell in process", 2.3), ("over HTTP", 15.0)):
                print(f"  {added * 1e3:.1f} ms a cell: {added / seconds:.2%} of {name} of {seconds} s")
    finally:
        cluster.shutdown()


def run(executor: RayCluster, cells: int, cell_s: float) -> float:
    """Runs cells, each a shard; the seconds that they took by themselves, added up."""
    took: list[float] = []
    shards = [Shard(f"{n}", (f"{n}",), partial(wait, cell_s), Needs(1, 0.5)) for n in range(cells)]
    errors = executor.run(shards, took.append)
    assert not errors
    assert len(took) == cells
    return sum(took)


if __name__ == "__main__":
    main()
