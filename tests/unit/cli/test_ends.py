"""SIGTERM ends a command as Ctrl-C does: it releases its resources."""

from __future__ import annotations

import signal
import subprocess
import sys

COMMAND = """
import time, typer
from vllm_harness.cli import main

main.app = typer.Typer()

@main.app.command()
def hold() -> None:
    try:
        print("held", flush=True)
        while True:  # a signal just before a single long sleep would wait for its end
            time.sleep(0.05)
    finally:
        print("given back", flush=True)

main.main()
"""


def test_sigterm_gives_back() -> None:
    with subprocess.Popen([sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout
        assert command.stdout.readline() == "held\n"
        command.send_signal(signal.SIGTERM)
        assert command.stdout.read() == "given back\n"
        assert command.wait(30) != 0
