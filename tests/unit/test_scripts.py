"""Scripts that run commands in parallel: a signal to the script ends all commands."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

SIDE_BY_SIDE = Path(__file__).parents[2] / "scripts" / "_side_by_side"
SLEEP = "import time; print('up', flush=True); time.sleep(600)"
SCRIPT = f"""
vh_grace_s=1
. {SIDE_BY_SIDE}
beside one {sys.executable} -c "{SLEEP}"
beside two {sys.executable} -c "{SLEEP}"
wait_for_all
"""


def ignore_interrupts() -> None:
    """Ignores interrupts, as a script's background jobs and their children do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_commands(sent: signal.Signals) -> None:
    with subprocess.Popen(["bash", "-c", SCRIPT], stdout=subprocess.PIPE, text=True) as both:
        end(both, sent)


def test_sigterm_ends_commands_that_ignore_interrupts() -> None:
    with subprocess.Popen(
        ["bash", "-c", SCRIPT], stdout=subprocess.PIPE, text=True, preexec_fn=ignore_interrupts
    ) as both:
        end(both, signal.SIGTERM)


def end(both: subprocess.Popen[str], sent: signal.Signals) -> None:
    """Sends the signal when both commands are running, and waits until they and the script have ended."""
    assert both.stdout
    assert sorted(both.stdout.readline() for _ in range(2)) == ["one | up\n", "two | up\n"]
    both.send_signal(sent)
    both.stdout.read()  # returns when the last process that holds the pipe has ended
    assert both.wait(120) == 130
