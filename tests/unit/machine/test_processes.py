"""A process that ends with the one that started it, however that ends."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest

from vllm_harness.machine.processes import killed_with_parent

PARENT = """
import subprocess, time
from vllm_harness.machine.processes import killed_with_parent
print(subprocess.Popen([*killed_with_parent(), "sleep", "600"]).pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not killed_with_parent(), reason="needs setpriv (util-linux)")
def test_it_ends_with_a_parent_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.is_running()
        parent.kill()
        until = time.monotonic() + 30
        with suppress(psutil.NoSuchProcess):
            while child.status() != psutil.STATUS_ZOMBIE:
                assert time.monotonic() < until, "it outlived its parent"
                time.sleep(0.05)
