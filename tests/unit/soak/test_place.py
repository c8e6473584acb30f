"""A soak finds what commands leave behind, and leaves nothing itself, even if it is killed."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from tests.faults.leftovers import pids_below

ROOT = Path(__file__).parents[3]
START = """
import json, socket, subprocess, sys
from pathlib import Path
from tests.soak.commands import Command, _started
from tests.soak.place import place
"""
LEAVES = (
    START
    + """
with place(Path(sys.argv[1])) as where:
    assert where.left(after_next_run=True, within_s=0) == []
    # the process outlives its parent, which ends at once
    subprocess.run(["sh", "-c", "setsid sleep 1000 & echo $!"], env=where.environ(), stdout=sys.stderr)
    (where.tmp / "vh-0123456789ab").mkdir()
    (where.tmp / ".vllm-harness-mine.tmp").mkdir()
    claim = {"kind": "lease", "pid": 7, "amounts": {"memory": 1}, "port": 0}
    (where.state / "claims.json").write_text(json.dumps([claim]))
    print(json.dumps([where.left(within_s=0), where.left(after_next_run=True, within_s=0)]))
"""
)
WAITS = (
    START
    + """
with place(Path(sys.argv[1])) as where:
    with _started("sleep", "1000", command=Command(()), place=where) as command:
        print(command.process.pid, flush=True)
        command.end()
"""
)


def test_leftovers_are_found_and_ended(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LEAVES, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    pid = int(run.stderr)
    at_once, after_next_run = json.loads(run.stdout)
    assert len(at_once) == 2
    assert any(left.startswith(f"pid {pid} (sleep 1000") for left in at_once)
    assert any(left.endswith("/vh-0123456789ab") for left in at_once)
    assert set(at_once) < set(after_next_run)
    more = sorted(set(after_next_run) - set(at_once))
    assert len(more) == 2
    assert more[0].endswith("/.vllm-harness-mine.tmp")
    assert more[1] == "lease of pid 7: lease {'memory': 1}"
    assert list(tmp_path.iterdir()) == []
    assert not Path(f"/proc/{pid}").exists()


def test_a_killed_soak_ends_its_commands(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WAITS, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as soak:
        assert soak.stdout is not None
        ended = os.pidfd_open(pid := int(soak.stdout.readline()))
        try:
            assert pids_below(tmp_path) == {pid}
            soak.send_signal(signal.SIGKILL)
            assert select.select([ended], [], [], 300)[0], "the command outlived the soak"
        finally:
            os.close(ended)
    assert len(list(tmp_path.iterdir())) == 1
    subprocess.run(
        [sys.executable, "-c", START + "with place(Path(sys.argv[1])): pass", str(tmp_path)], cwd=ROOT
    )
    assert list(tmp_path.iterdir()) == []
