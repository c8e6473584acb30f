"""The memory available to a CPU server, on machines described by the files in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from vllm_harness._machine.node_memory import NodeMemory, node_memory

GIB = 2**30
Describe = Callable[..., Path]


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a machine with 24 GiB, of which 20 are available; processors 5 and 9 may be used."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {5, 9}, raising=False)
    whole = SimpleNamespace(total=24 * GIB, available=20 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: whole)


@pytest.fixture
def describe(tmp_path: Path) -> Describe:
    """Writes the `proc` and `sys` files of a machine, given each node's processors, and GiB (total, free)."""

    def write(
        nodes: dict[int, tuple[str, float, float]],
        *,
        allowed: str = "0-7",
        present: dict[int, float] | None = None,
        files: dict[str, str] | None = None,
    ) -> Path:
        folder = "sys/devices/system/node"
        texts = {
            "proc/self/status": f"Name:\tx\nMems_allowed_list:\t{allowed}\n",
            f"{folder}/has_memory": ",".join(str(node) for node, (_, total, _f) in nodes.items() if total),
            "proc/zoneinfo": "".join(
                f"Node {node}, zone   Normal\n  pages free 1\n        present  {int(gib * GIB) // 4096}\n"
                for node, gib in (present or {}).items()
            ),
        }
        for node, (processors, total, free) in nodes.items():
            texts[f"{folder}/node{node}/cpulist"] = f"{processors}\n"
            sizes = {"MemTotal": total, "MemFree": free / 2, "Inactive(file)": free / 2}
            lines = [f"Node {node} {name}: {int(gib * GIB) // 1024} kB\n" for name, gib in sizes.items()]
            texts[f"{folder}/node{node}/meminfo"] = "".join(lines)
        for name, text in (texts | (files or {})).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_this_machine_has_memory() -> None:
    memory = node_memory()
    assert 0 < memory.available <= memory.total


def test_one_node_has_the_memory_of_the_machine(describe: Describe) -> None:
    assert node_memory(describe({0: ("0-9", 4, 3)})) == NodeMemory(24 * GIB, 20 * GIB)


def test_without_nodes_it_is_the_memory_of_the_machine(tmp_path: Path) -> None:
    assert node_memory(tmp_path) == NodeMemory(24 * GIB, 20 * GIB)


def test_the_node_of_the_first_processor_counts(describe: Describe) -> None:
    root = describe({0: ("0-3", 14, 10), 1: ("4-9", 10, 6)})
    assert node_memory(root) == NodeMemory(10 * GIB, 6 * GIB)


def test_a_processor_without_memory_uses_the_first_allowed_node(describe: Describe) -> None:
    nodes = {0: ("0-3", 8, 4), 1: ("4-9", 0, 0), 2: ("", 8, 5), 3: ("10-12", 8, 6)}
    assert node_memory(describe(nodes, allowed="2-3")) == NodeMemory(8 * GIB, 5 * GIB)


def test_a_node_that_is_not_allowed_does_not_count(describe: Describe) -> None:
    nodes = {0: ("0-3", 14, 10), 1: ("4-9", 10, 6)}
    assert node_memory(describe(nodes, allowed="1")) == NodeMemory(24 * GIB, 20 * GIB)


def test_unaccepted_memory_counts(describe: Describe) -> None:
    root = describe({0: ("0-3", 4, 2), 1: ("4-9", 12, 6)}, present={0: 12, 1: 12})
    assert node_memory(root) == NodeMemory(12 * GIB, 6 * GIB)
    root = describe({0: ("0-3", 12, 2), 1: ("4-9", 4, 2)}, present={0: 12, 1: 12})
    assert node_memory(root) == NodeMemory(12 * GIB, 10 * GIB)


@pytest.mark.parametrize(
    ("own", "files"),
    [
        (
            "0::/a/b",
            {"a/b/memory.max": "max", "a/memory.max": f"{6 * GIB}", "a/memory.current": f"{3 * GIB}"},
        ),
        ("0::/elsewhere", {"memory.max": f"{6 * GIB}", "memory.current": f"{3 * GIB}"}),
        (
            "4:memory:/a\n0::/",
            {
                "memory/a/memory.limit_in_bytes": f"{6 * GIB}",
                "memory/a/memory.usage_in_bytes": f"{5 * GIB}",
                "memory/a/memory.stat": f"total_active_file {GIB}\ntotal_inactive_file {GIB}\n",
                "memory/memory.limit_in_bytes": "9223372036854771712",
            },
        ),
    ],
    ids=["a group above", "a container's", "version 1, file cache"],
)
def test_control_groups_limit_it(describe: Describe, own: str, files: dict[str, str]) -> None:
    placed = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    root = describe({0: ("0-9", 24, 20)}, files=placed | {"proc/self/cgroup": own})
    assert node_memory(root) == NodeMemory(6 * GIB, 3 * GIB)


def test_a_group_without_a_limit_is_ignored(describe: Describe) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/a",
        "sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{2**63 - 4096}",
    }
    assert node_memory(describe({0: ("0-9", 24, 20)}, files=files)) == NodeMemory(24 * GIB, 20 * GIB)
