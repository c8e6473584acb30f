"""A cluster of three nodes on one machine, made with Ray's own test utilities."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.extras.cluster.command import start
from vllm_harness.extras.cluster.places import Placement
from vllm_harness.extras.cluster.ray_cluster import RayCluster, connected

Begin = Callable[..., subprocess.Popen[str]]

NODE = {"num_cpus": 2, "memory": 4 * 2**30, "object_store_memory": 80 * 2**20}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks all tests in this folder as slow."""
    for item in items:
        if "tests/extras/cluster" in item.nodeid:
            item.add_marker(pytest.mark.vllm_slow)


@contextmanager
def cluster_of(number: int, **node: Any) -> Iterator[Any]:
    """A running cluster with `number` nodes."""
    pytest.importorskip("ray", reason="Ray is not installed; scripts/cluster makes an environment with it")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        for _ in range(number - 1):
            cluster.add_node(**node)
        yield cluster
    finally:
        cluster.shutdown()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """The cluster of three nodes; a test may add nodes, and remove those that it has added."""
    with cluster_of(3, **NODE) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def ray_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of the file with Ray's own messages."""
    return tmp_path_factory.mktemp("ray") / "run" / "ray.log"


@pytest.fixture(scope="module")
def ray(nodes: Any, ray_log: Path) -> Iterator[Any]:
    """The module `ray`, connected to the cluster; workers use this Python environment, so nothing is sent."""
    sent = {"env_vars": {"VLLM_HARNESS_LINGER_S": "0"}}
    with connected(nodes.address, runtime_env=sent, log=ray_log) as module:
        yield module


@pytest.fixture
def begin(nodes: Any) -> Iterator[Begin]:
    """A function that starts `vllm-harness`; at the end of the test, started processes are killed."""
    processes = []

    def start_one(*arguments: str) -> subprocess.Popen[str]:
        processes.append(start(*arguments))
        return processes[-1]

    yield start_one
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def placed() -> list[Placement]:
    """The placements of cells that the executor has recorded."""
    return []


@pytest.fixture
def lines() -> list[str]:
    """The lines that the executor has printed."""
    return []


@pytest.fixture
def cluster(ray: Any, placed: list[Placement], lines: list[str]) -> Callable[..., RayCluster]:
    """A function that makes executors for the cluster."""

    def make(silence_timeout_s: float = 60.0) -> RayCluster:
        return RayCluster(ray, lines.append, placed.append, silence_timeout_s)

    return make
