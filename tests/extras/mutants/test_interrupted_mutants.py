"""Interrupting a command that judges mutants ends it at once, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from vllm_harness._environments import Environment
from vllm_harness._server import blocks
from vllm_harness._server.records import running
from vllm_harness.extras.review.coverage import TestLines, coverage_file

pytestmark = pytest.mark.timeout(300)

MUTANT = "responses-last-item-not-closed"
SERVING = "entrypoints/openai/responses/serving.py"
TEST = "tests/behaviours/test_responses_basics.py::test_plain_answer[scripted-qwen3]"
PARSER = "tool_parsers/hermes_tool_parser.py"
SOON_S = 60.0
"""Far less than a whole run takes, but enough for vLLM to end on a busy machine."""


@pytest.fixture
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Environment variables that name separate state and temporary folders, also set in this process."""
    for name, value in {"VLLM_HARNESS_STATE": "state", "TMPDIR": "t", "VLLM_HARNESS_LINGER_S": "0"}.items():
        monkeypatch.setenv(name, value if value == "0" else str(tmp_path / value))
    (tmp_path / "t").mkdir()
    return dict(os.environ)


def wait_for(look: Callable[[], object], command: subprocess.Popen[str]) -> None:
    while not look():
        assert command.poll() is None, command.communicate()[1]
        time.sleep(0.05)


def folders(variables: Mapping[str, str]) -> list[str]:
    """The temporary folders that remain; lock files that uv leaves beside them do not count."""
    return [path.name for path in Path(variables["TMPDIR"]).iterdir() if path.is_dir()]


def started(arguments: list[str], variables: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "vllm_harness.cli.start", *arguments],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_with(variables: Mapping[str, str]) -> Iterator[psutil.Process]:
    """The other running processes that use this state folder."""
    for process in psutil.process_iter():
        try:
            theirs = process.environ().get("VLLM_HARNESS_STATE")
            runs = process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid()
            if theirs == variables["VLLM_HARNESS_STATE"] and runs:
                yield process
        except psutil.Error:
            continue


def interrupted(command: subprocess.Popen[str], sent: signal.Signals) -> str:
    """Sends the command a signal, after which it must end soon; returns its output."""
    command.send_signal(sent)
    _, output = command.communicate(timeout=SOON_S)
    assert command.returncode == 128 + sent, output
    return output


@pytest.mark.vllm_slow
def test_mutants_end_at_once(release: Environment, variables: dict[str, str], tmp_path: Path) -> None:
    lines = coverage_file(release)
    lines.parent.mkdir(parents=True)
    about = {"test": TEST, "target": "scripted-qwen3", "outcome": "passed", "seconds": 1}
    ran = TestLines.model_validate({**about, "lines": {SERVING: "1-9999"}})
    lines.write_text(f"{ran.model_dump_json()}\n")
    kept = tmp_path / "results.jsonl"
    options = ["--only", MUTANT, "--jobs", "1", "--output", str(kept)]
    command = started(["mutants", "serving", *options], variables)
    wait_for(running, command)
    (server,) = running()
    output = interrupted(command, signal.SIGINT)
    assert f"kept: {kept}; to resume:\n" in output
    assert kept.read_text() == ""
    assert (running(), blocks.of_server(server.server_id)) == ([], set())
    assert folders(variables) == []
    wait_for_none(variables)


@pytest.mark.vllm_slow
@pytest.mark.usefixtures("release")
def test_mutants_of_a_parser_end_at_once(variables: dict[str, str], tmp_path: Path) -> None:
    kept = tmp_path / "results.jsonl"
    options = ["--parsers", "hermes", "--cases", "canonical", "--sample", "50", "--jobs", "1"]
    command = started(["mutants", "parsers", PARSER, *options, "--output", str(kept)], variables)
    wait_for(lambda: kept.exists() and folders(variables), command)
    output = interrupted(command, signal.SIGTERM)
    assert f"kept: {kept}; to resume:\n" in output
    assert output.endswith(f" --earlier={kept}\n")
    assert folders(variables) == []
    wait_for_none(variables)


def wait_for_none(variables: Mapping[str, str]) -> None:
    """Waits until all processes have ended; the fork server ends once no command uses it."""
    deadline = time.monotonic() + SOON_S
    while left := [process.cmdline() for process in processes_with(variables)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
