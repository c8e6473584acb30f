"""Interrupts commands: each signal, at each moment of each command; see `interruptible.py`.

A moment is an event that the test waits for: the process handles the signals, or prints a line.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.faults.interruptible import COMMANDS, END, LAST_TEST, SLOW_TOOL, START, WORK, Interruptible
from vllm_harness._machine.interrupts import SIGNALS
from vllm_harness._runs.folder import PATTERN
from vllm_harness._runs.report.run import read_run

PROGRAM = Path(sys.executable).with_name("vllm-harness")
HAPPENS_WITHIN_S = 600
LAST_WORDS = re.compile(r"interrupted by \w+; (nothing to keep yet|kept: .*); to (resume|start again):$")
QUICK = {("run", START, signal.SIGHUP), ("serve", START, signal.SIGTERM), ("regression", WORK, signal.SIGINT)}
"""The cases that run without --vllm-slow; no server starts in them."""
CASES = [
    pytest.param(
        name,
        moment,
        number,
        id=f"{name}-{moment}-{number.name}",
        marks=[
            *([] if (name, moment, number) in QUICK else [pytest.mark.vllm_slow]),
            *([pytest.mark.extra(command.extra)] if command.extra else []),
        ],
    )
    for name, command in COMMANDS.items()
    for moment in (START, *command.moments)
    for number in SIGNALS
]
pytestmark = pytest.mark.timeout(3 * HAPPENS_WITHIN_S)


@dataclass
class Place:
    """A state folder and a folder for temporary files of their own, and what commands need in them."""

    folder: Path
    rows: dict[str, dict[str, str]] = field(default_factory=dict)
    _server: subprocess.Popen[bytes] | None = None
    _url: str = ""

    @property
    def environ(self) -> dict[str, str]:
        """The variables of the commands."""
        (self.folder / "tmp").mkdir(exist_ok=True)
        own = {"VLLM_HARNESS_STATE": f"{self.folder}/state", "TMPDIR": f"{self.folder}/tmp"}
        return {**os.environ, **own, "VLLM_HARNESS_LINGER_S": "3600", "PYTHONUNBUFFERED": "1"}

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Starts a command."""
        return subprocess.Popen(
            [PROGRAM, *arguments],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        )

    def arguments(self, command: Interruptible, folder: Path) -> list[str]:
        """The arguments of a command; starts the server or makes the run that it needs."""
        (folder / "slow.yaml").write_text(SLOW_TOOL)
        (folder / "test_last.py").write_text(LAST_TEST)
        url = self.url() if "{url}" in command.line else ""
        run = str(self.run()) if "{run}" in command.line else ""
        return shlex.split(command.line.format(folder=folder, url=url, run=run))

    def url(self) -> str:
        """The URL of a server, which is started once."""
        if not self._server:
            self._server = self.start("serve", "qwen3", "--lane", "scripted", "--quiet")
            said = read_until(self._server, r"^url +\S+/v1$")
            self._url = re.findall(r"^url +(\S+)/v1$", said, re.MULTILINE)[0]
        return self._url

    def run(self) -> Path:
        """The folder of a run of parser regression."""
        folder = self.folder / "state/regression/base"
        if not folder.exists():
            line = "regression --vllm 0.32.0 --parsers hermes --cases canonical --run base"
            self.start(*line.split()).communicate()
        return folder

    def processes(self) -> set[int]:
        """The running processes that use this state folder."""
        found = set()
        for process in psutil.process_iter():
            try:
                theirs = process.environ().get("VLLM_HARNESS_STATE") == f"{self.folder}/state"
                if theirs and process.status() != psutil.STATUS_ZOMBIE and not _is_template(process):
                    found.add(process.pid)
            except psutil.Error:
                continue
        return found

    def end(self) -> None:
        """Stops the server and the fork servers."""
        if self._server:
            self._server.send_signal(signal.SIGINT)
            self._server.communicate()
        self.start("serve", "stop").communicate()
        shutil.rmtree(self.folder)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """A place for the commands of this module; prints the table of what they did."""
    place = Place(Path(tempfile.mkdtemp(prefix="vhk-", dir="/tmp")))  # short: sockets are inside
    try:
        yield place
    finally:
        place.end()
        for name, cells in place.rows.items():
            print(f"| {name} | {' | '.join(f'{moment}: {cell}' for moment, cell in cells.items())} |")


@pytest.mark.parametrize(("name", "moment", "number"), CASES)
def test_an_interrupted_command(
    name: str, moment: str, number: signal.Signals, place: Place, tmp_path: Path
) -> None:
    command = COMMANDS[name]
    arguments = place.arguments(command, tmp_path)
    before = place.processes()
    process = place.start(*arguments)
    output = ""
    if moment == START:
        until_it_handles_signals(process)
    else:
        output = read_until(process, command.moments[moment])
    process.send_signal(number)
    output += ended(process)
    code = process.returncode
    assert "Traceback" not in output, output
    place.rows.setdefault(name, {})[f"{moment} {number.name}"] = f"{code} {kept_by(output) or ''}"
    expected = {command.after.get(moment, 128 + number)}
    by_then = {0, 1, 2, 3, -number}  # its own code, or the signal's, as a shell shows it, while Python ends
    assert code in (expected if moment != END else expected | by_then), output
    if code > 128:
        check_last_words(output, arguments, code, number)
        kept = kept_by(output)
        if command.kept is not None and moment not in (START, END):
            assert bool(kept) == (moment in command.kept), output
        if kept and any(kept.glob(PATTERN)):
            end = read_run(kept).end
            assert end is not None
            assert end.exit_code == code or moment == END
        assert all((kept / file).exists() for file in command.files if kept and moment == WORK), kept
    wait_until_gone(place, before)


def check_last_words(output: str, arguments: list[str], code: int, number: signal.Signals) -> None:
    """Checks the two last lines: what is kept, and a command to paste that is complete."""
    *_, said, again = output.splitlines()
    assert LAST_WORDS.match(said)
    assert f" by {number.name};" in said
    program, *resumed = shlex.split(again)
    assert program == str(PROGRAM) or shutil.which(program)
    assert resumed[0] == arguments[0]
    if "to resume" not in said:
        assert resumed == arguments
    assert code == 128 + number


def kept_by(output: str) -> Path | None:
    """The path that an interrupted command names."""
    found = re.search(r"^interrupted by \w+; kept: (.*); to ", output, re.MULTILINE)
    if found:
        assert Path(found.group(1)).exists()
    return Path(found.group(1)) if found else None


def until_it_handles_signals(process: subprocess.Popen[bytes]) -> None:
    """Waits until a process handles the three signals."""
    wanted = sum(1 << number - 1 for number in SIGNALS)
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = int(status.partition("SigCgt:\t")[2].partition("\n")[0] or "0", 16)
        if caught & wanted == wanted:
            return
        time.sleep(0.005)


def read_until(process: subprocess.Popen[bytes], pattern: str) -> str:
    """Reads a process's output until it matches, and returns it; fails if it does not match in time."""
    assert process.stdout
    limit = threading.Timer(HAPPENS_WITHIN_S, process.kill)
    limit.start()
    output = ""
    try:
        while data := os.read(process.stdout.fileno(), 2**16):
            output += data.decode(errors="replace")
            if re.search(pattern, output, re.MULTILINE):
                return output
    finally:
        limit.cancel()
    raise AssertionError(f"nothing matches {pattern}:\n{output}")


def ended(process: subprocess.Popen[bytes]) -> str:
    """Waits until a process ends; returns the rest of its output."""
    return process.communicate(timeout=HAPPENS_WITHIN_S)[0].decode(errors="replace")


def wait_until_gone(place: Place, before: set[int]) -> None:
    """Waits until the processes that a command started have ended."""
    deadline = time.monotonic() + HAPPENS_WITHIN_S
    while left := place.processes() - before:
        assert time.monotonic() < deadline, [psutil.Process(pid).cmdline() for pid in left]
        time.sleep(0.1)


def _is_template(process: psutil.Process) -> bool:
    """Whether a process is a fork server or a template of one, which outlives a command; no server does."""
    is_forked = any("vllm_harness_template" in argument for argument in process.cmdline())
    return is_forked and not Path(process.cwd()).name.startswith("vh-")


@pytest.mark.vllm_slow
def test_a_second_interrupt_ends_a_command_at_once(place: Place, tmp_path: Path) -> None:
    arguments = place.arguments(COMMANDS["cassette record"], tmp_path)
    before = place.processes()
    process = place.start(*arguments)
    output = read_until(process, "turn 2 of 2")
    process.send_signal(signal.SIGINT)
    output += read_until(process, "1 of 2 turns")
    process.send_signal(signal.SIGINT)
    output += ended(process)
    assert process.returncode == 128 + signal.SIGINT
    assert kept_by(output) == tmp_path / "recorded.yaml"
    assert "Traceback" not in output
    wait_until_gone(place, before)


@pytest.mark.vllm_slow
def test_an_interrupted_run_is_resumed(place: Place, tmp_path: Path) -> None:
    """The command that an interrupted run prints goes on where it was."""
    process = place.start(*place.arguments(COMMANDS["regression, end"], tmp_path))
    read_until(process, COMMANDS["regression"].moments[WORK])
    process.send_signal(signal.SIGINT)
    output = ended(process)
    kept = kept_by(output)
    resumed = place.start(*shlex.split(output.splitlines()[-1])[1:])
    output = ended(resumed)
    assert f"run: {kept}" in output
    assert resumed.returncode in (0, 1)
