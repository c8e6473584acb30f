"""The commands whose processes are killed, and how each of them is run to its end."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.soak.place import ROOT, Place
from vllm_harness._machine.processes import killed_with_parent

HARNESS = str(Path(sys.executable).with_name("vllm-harness"))
STORY, ON_QWEN3 = "etl-three-turns", ("--model", "qwen3", "--lane", "scripted")
SERVE = ("serve", "qwen3", "--lane", "scripted")
INTERRUPTED = {0, 128 + signal.SIGINT, 128 + signal.SIGTERM}
END_WITHIN_S = 600
HELPER_WITHIN_S = 60
BOOK = "rules:\n  - say: It is sunny in Paris.\n"
CLIENT = """
import json, sys, time, urllib.request
body = json.dumps({"model": "qwen3", "messages": [{"role": "user", "content": "hi"}]}).encode()
while True:
    request = urllib.request.Request(sys.argv[1], body, {"Content-Type": "application/json"})
    try:
        urllib.request.urlopen(request, timeout=60).read()
    except OSError:
        pass
    time.sleep(0.2)
"""
URL = re.compile(r"http://127\.0\.0\.1:(\d+)")


class CommandFails(Exception):
    """A command fails although nothing was killed, so that its trials would show nothing."""


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        arguments: its arguments; `{run}` is a path that is the same in both runs of a trial, `{url}` the
            server's URL, and `{port}` a free port.
        until: the line of output after which a command that does not end by itself is interrupted.
        hold_s: the seconds between this line and the interruption.
        has_upstream: whether it needs a server, and a client that sends requests through the command.
    """

    arguments: tuple[str, ...]
    until: str = ""
    hold_s: float = 0.0
    has_upstream: bool = False

    def passed(self, code: int | None) -> bool:
        """Whether an undisturbed run may end with this exit code."""
        return code in (INTERRUPTED if self.until else {0})


COMMANDS = {
    "scenario": Command(("scenario", "run", STORY, *ON_QWEN3)),
    "load": Command(("load", STORY, *ON_QWEN3, "--requests", "60", "--concurrency", "4")),
    "record": Command(("cassette", "record", STORY, *ON_QWEN3, "-o", "{run}.yaml")),
    "proxy": Command(
        ("cassette", "record", "--proxy", "{port}", "--upstream", "{url}", "-o", "{run}.yaml"),
        until=r"^t5: ",
        hold_s=1.0,
        has_upstream=True,
    ),
    "serve": Command(SERVE, until="^Ctrl-C ends the server", hold_s=3.0),
    "run": Command(("run", *ON_QWEN3, "--", "-q", "-k", "responses_basics", "-p", "no:cacheprovider")),
    "regression": Command(
        (
            *("regression", "--parsers", "hermes", "--cases", "canonical", "--run", "{run}"),
            *("--baseline", "ci/regression-0.32.0.yaml"),
        )
    ),
    "regression over HTTP": Command(
        (
            *("regression", "--engine", "http", "--parsers", "qwen3_thinking", "--cases", "canonical"),
            *("--apis", "chat", "--run", "{run}", "--write-baseline", "{run}.baseline"),
        )
    ),
}


class Running:
    """A command that was started, with the processes that it needs beside it.

    Args:
        process: the command's process.
        output: the file with its output.
        command: what was started.
        place: where it was started.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], output: Path, command: Command, place: Place
    ) -> None:
        self.process, self._output, self._command, self._place = process, output, command, place
        self._started = time.monotonic()
        self._due_s: float | None = None

    def seconds(self) -> float:
        """The seconds since the start."""
        return time.monotonic() - self._started

    def text(self) -> str:
        """The output so far."""
        return self._output.read_text(errors="replace")

    def step(self) -> bool:
        """Waits a moment; returns whether the command is still running. Interrupts it if that is due."""
        text = self.text()
        self._place.ports |= {int(port) for port in URL.findall(text)}
        self._place.look()
        until = self._command.until
        if until and self._due_s is None and re.search(until, text, re.MULTILINE):
            self._due_s = self.seconds() + self._command.hold_s
        if self._due_s is not None and self.seconds() > self._due_s:
            self._due_s = float("inf")
            self.process.terminate()
        time.sleep(0.05)
        self._place.reap()
        return self.process.poll() is None

    def expect_end(self) -> None:
        """Lets the command end by itself, without an interruption."""
        self._due_s = float("inf")

    def end(self, within_s: float = END_WITHIN_S) -> int | None:
        """Waits for the end; returns the exit code, or None if the command had to be killed."""
        deadline = time.monotonic() + within_s
        while self.step():
            if time.monotonic() > deadline:
                self.process.kill()
                self.process.wait()
                return None
        return self.process.returncode

    def wait_for(self, pattern: str) -> str:
        """Waits until the output matches a pattern; returns the first group."""
        while not (found := re.search(pattern, self.text(), re.MULTILINE)):
            if not self.step():
                raise CommandFails(f"a server for the command ended too early:\n{self.text()}")
        return found[1]


@contextmanager
def running(name: str, place: Place, run: str) -> Iterator[Running]:
    """Starts a command; ends it at the end, with the processes beside it."""
    command, port = COMMANDS[name], str(_free_port())
    with ExitStack() as beside:
        words = {"run": str(place.work / run), "port": port}
        if command.has_upstream:
            book = place.work / "book.yaml"
            book.write_text(BOOK)
            server = Command((*SERVE, "--book", str(book)))
            upstream = beside.enter_context(_started(HARNESS, *server.arguments, command=server, place=place))
            words["url"] = upstream.wait_for(r"^url +(http://[\d.:]+)")
            client = (sys.executable, "-c", CLIENT, f"http://127.0.0.1:{port}/v1/chat/completions")
            beside.enter_context(_started(*client, command=Command(()), place=place))
        argv = (HARNESS, *(argument.format(**words) for argument in command.arguments))
        yield beside.enter_context(_started(*argv, command=command, place=place))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _started(*argv: str, command: Command, place: Place) -> Iterator[Running]:
    output = place.new_output()
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*killed_with_parent(), *argv],
            env=place.environ(),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    place.own.append(process)
    itself = Running(process, output, command, place)
    try:
        yield itself
    finally:
        if process.poll() is None:
            process.terminate()
            itself.end(HELPER_WITHIN_S)
        place.own.remove(process)


def victims(victim: str, place: Place, command: Running) -> list[int]:
    """The running processes of a kind."""
    supervisor, server, engine, _ = place.processes.tree(place.tmp)
    roles = {"supervisor": supervisor, "API server": server, "engine": engine}
    if victim == "fork server":
        return sorted(place.processes.fork_servers())
    if victim == "regression worker":
        return place.processes.children(command.process.pid, "-c")
    pid = roles.get(victim, command.process.pid)
    return [] if pid is None else [pid]
