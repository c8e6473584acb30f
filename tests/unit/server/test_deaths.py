"""A server's log names the process that a signal killed, unless its parent asked it to end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vllm_harness._server.launch import IN_SERVER

PROGRAM = f"""
import multiprocessing, os, signal, sys

sys.path.append({str(IN_SERVER)!r})
import vllm_harness_deaths


def wait():
    signal.pause()


def end(process, *, asked):
    process.start()
    os.kill(process.pid, signal.SIGSTOP)  # so that SIGTERM alone does not end it
    if asked:
        process.terminate()
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL


if __name__ == "__main__":
    vllm_harness_deaths.report_deaths()
    context = multiprocessing.get_context(sys.argv[1])
    end(context.Process(target=wait, name="EngineCore_DP0"), asked=False)
    end(context.Process(target=wait, name="Worker"), asked=True)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_only_a_death_that_nobody_asked_for_is_reported(method: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ended = subprocess.run([sys.executable, program, method], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert ended.stderr == "vllm-harness: EngineCore_DP0 was killed by signal 9\n"
