"""The progress of a run: whole lines in a log, nothing on a terminal; most tests use a fake clock."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

@pytest.mark.parametrize("number", range(12))
def test_numbers(number):
    assert number != 2

@pytest.mark.xfail
def test_expected():
    assert False
"""
WITH_CLOCK = """
import itertools
from vllm_harness._testing.progress import RunProgress

def pytest_collection_finish(session):
    clock = itertools.count(0, 3.0).__next__
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    follower = RunProgress(reporter, len(session.items), lambda nodeid: "scripted-qwen3", clock)
    session.config.pluginmanager.register(follower)
"""
WITHOUT_DELAY = """
from vllm_harness._testing import progress

progress.EVERY_S = 0

def pytest_collection_finish(session):
    progress.follow(session, lambda item: "scripted-qwen3")
"""


def progress_lines(lines: list[str]) -> list[str]:
    return [line for line in lines if " of 13 tests" in line]


@pytest.mark.parametrize("flags", [["-q"], ["-v"], ["-q", "-s"]])
def test_a_log_has_whole_lines_between_those_of_pytest(flags: list[str], pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    pytester.makeconftest(WITH_CLOCK)
    result = pytester.runpytest_subprocess(*flags)
    result.assert_outcomes(passed=11, failed=1, xfailed=1)
    lines = progress_lines(result.outlines)
    assert lines
    assert all(line.split(" of 13 tests")[0].isdigit() for line in lines)
    assert lines[-1].endswith(" left (scripted-qwen3)")
    assert ", 1 failed, " in lines[-1]
    assert sum("[100%]" in line for line in result.outlines) == (
        "-s" not in flags
    )  # with -s, pytest prints no percentage


def test_lines_have_a_distance(pytester: pytest.Pytester) -> None:
    """The fake clock advances by three seconds at each call, and is called several times per test."""
    pytester.makepyfile(TESTS)
    pytester.makeconftest(WITH_CLOCK)
    assert 2 <= len(progress_lines(pytester.runpytest_subprocess("-q").outlines)) <= 6


def test_each_test_but_the_last_can_have_a_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    pytester.makeconftest(WITHOUT_DELAY)
    lines = progress_lines(pytester.runpytest_subprocess("-q").outlines)
    assert [line.split(" of ")[0] for line in lines] == [str(number) for number in range(1, 13)]
    assert not progress_lines(pytester.runpytest_subprocess("-qq").outlines)


def test_a_terminal_has_only_the_progress_of_pytest(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    pytester.makeconftest(WITHOUT_DELAY)
    lines = on_a_terminal(pytester.path)
    assert any("11 passed" in line for line in lines)
    assert not progress_lines(lines)


def on_a_terminal(folder: Path) -> list[str]:
    """The lines that pytest writes to a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    with subprocess.Popen(command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        text = b""
        try:
            while piece := os.read(ours, 65536):
                text += piece
        except OSError:  # raised on Linux when the other end is closed
            pass
    os.close(ours)
    return text.decode().splitlines()
