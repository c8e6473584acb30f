"""The count of OOM kills, read from the control groups of the process and for the whole system."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness._machine.control_groups import oom_kills


@pytest.mark.parametrize(
    ("own", "counter"),
    [
        ("0::/a/b", "sys/fs/cgroup/a/b/memory.events"),
        ("9:cpu:/x\n4:memory:/a", "sys/fs/cgroup/memory/a/memory.oom_control"),
    ],
)
def test_kills_in_the_group_and_in_the_system_count(own: str, counter: str, tmp_path: Path) -> None:
    texts = {
        "proc/self/cgroup": f"{own}\n",
        "proc/vmstat": "pgfault 7\noom_kill 2\n",
        counter: "oom 9\noom_kill 3\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert oom_kills(tmp_path) == 5


def test_a_machine_without_counters_has_no_kills(tmp_path: Path) -> None:
    assert oom_kills(tmp_path) == 0
