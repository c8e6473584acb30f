"""A process that ends with its parent, however the parent ends."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from vllm_harness._machine.processes import killed_with_parent

PARENT = """
import subprocess, time
from vllm_harness._machine.processes import killed_with_parent
print(subprocess.Popen([*killed_with_parent(), "sleep", "600"]).pid, flush=True)
time.sleep(600)
"""

PREFIX = """
import json
from vllm_harness._machine.processes import killed_with_parent
print(json.dumps(killed_with_parent()))
"""

pytestmark = pytest.mark.skipif(not killed_with_parent(), reason="needs setpriv (util-linux)")


def test_it_ends_with_a_killed_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.is_running()
        parent.kill()
        until = time.monotonic() + 120
        with suppress(psutil.NoSuchProcess):
            while child.status() != psutil.STATUS_ZOMBIE:
                assert time.monotonic() < until, "it outlived its parent"
                time.sleep(0.05)


def test_it_does_not_start_without_its_parent(tmp_path: Path) -> None:
    """The parent was killed before the process asked the kernel to end it with its parent."""
    printed = subprocess.check_output([sys.executable, "-c", PREFIX])
    ended = subprocess.run([*json.loads(printed), "touch", str(tmp_path / "started")], check=False)
    assert ended.returncode == 137
    assert not (tmp_path / "started").exists()


def test_it_does_not_change_the_command() -> None:
    output = subprocess.check_output([*killed_with_parent(), "printf", "%s|", "a b", "$HOME", "--", ""])
    assert output == b"a b|$HOME|--||"
