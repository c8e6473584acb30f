"""How a command ends: its exit code, and what it says after a signal."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from vllm_harness._machine.interrupts import INTERRUPTED, SIGNALS
from vllm_harness.cli import main

COMMAND = """
import time, typer
from vllm_harness.cli import main, start

main.app = typer.Typer()

@main.app.callback()
def group() -> None:
    pass

@main.app.command()
def hold() -> None:
    try:
        print("held", flush=True)
        while True:  # a signal just before a single long sleep would wait for its end
            time.sleep(0.05)
    finally:
        print("given back", flush=True)

@main.app.command()
def fail() -> None:
    raise LookupError("nobody expected this")

start.main()
"""
TESTS = """
import time

def test_passes():
    pass

def test_fails():
    assert False

def test_holds():
    print("held", flush=True)
    time.sleep(600)
"""
RUNS = """
import sys
from vllm_harness._machine import interrupts
from vllm_harness.cli.run import run_pytest

interrupts.handle_signals()
try:
    codes = [run_pytest("-q", "-s", "-c", "/dev/null", *run.split()) for run in sys.argv[1:]]
    print("codes:", *codes)
except KeyboardInterrupt:
    interrupts.end(interrupts.exit_code(0))
"""


def begun(code: str, *arguments: str) -> subprocess.Popen[str]:
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen([sys.executable, "-c", code, *arguments], text=True, **output)  # type: ignore[call-overload, no-any-return]


def until_held(command: subprocess.Popen[str]) -> None:
    assert command.stdout
    while (line := command.stdout.readline()) and not line.endswith("held\n"):
        pass
    assert line


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, *(pytest.param(each, marks=pytest.mark.vllm_slow) for each in SIGNALS[:2])]
)
def test_a_signal_gives_back(number: signal.Signals) -> None:
    with begun(COMMAND, "hold") as command:
        until_held(command)
        command.send_signal(number)
        assert command.stdout
        first, _, said, again = command.stdout.read().splitlines()
        assert command.wait() == 128 + number
    assert first == "given back"
    assert said == f"interrupted by {number.name}; nothing to keep yet; to start again:"
    assert again.endswith(" hold")


def test_only_the_console_script_handles_signals_and_ends_its_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    monkeypatch.setattr(main, "app", interrupted := typer.Typer())
    interrupted.command()(lambda: signal.raise_signal(signal.SIGINT))
    monkeypatch.setattr(sys, "argv", ["vllm-harness"])
    assert main.main() == INTERRUPTED
    assert [signal.getsignal(number) for number in SIGNALS] == before
    assert capsys.readouterr().err == ""


def test_an_error_of_the_harness_is_no_finding() -> None:
    with begun(COMMAND, "fail") as command:
        output, _ = command.communicate()
    assert command.returncode == 3
    assert "LookupError: nobody expected this" in output
    assert "error: the harness failed: LookupError" in output


def test_exit_codes_of_pytest_become_those_of_a_command(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "test_broken.py").write_text("import nothing_that_exists")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/conftest.py").write_text("def pytest_collection_finish(): raise LookupError")
    (tmp_path / "inner/test_inner.py").write_text("def test_inner(): pass")
    runs = {
        f"{tmp_path}/test_it.py -k passes": 0,
        f"{tmp_path}/test_it.py -k fails": 1,
        f"{tmp_path}/test_it.py -k nothing_of_this_name": 2,
        f"{tmp_path}/test_it.py --no-such-option": 2,
        f"{tmp_path}/test_broken.py": 3,
        f"{tmp_path}/inner": 3,
    }
    with begun(RUNS, *runs) as command:
        output, _ = command.communicate()
    assert f"codes: {' '.join(map(str, runs.values()))}\n" in output
    assert "already imported" not in output


def test_pytest_ends_in_order_after_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "test_it.py").write_text(TESTS)
    with begun(RUNS, f"{tmp_path}/test_it.py -k holds") as command:
        until_held(command)
        command.send_signal(signal.SIGTERM)
        output, _ = command.communicate()
    assert command.returncode == 128 + signal.SIGTERM
    assert "KeyboardInterrupt" in output
    assert "2 deselected" in output  # the summary
    assert "interrupted by SIGTERM; " in output
