"""A fork server serves only those starters that have the limits which it inherited from its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_harness._server import fork_server

STARTING = Path(__file__).with_name("starting.py")
Start = Callable[[str], dict[str, Any]]


def _heed_hangup() -> None:
    """Undoes what nohup does, in case the tests run under it."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """Has a fork server started, or found, by a process with a limit; see `starting.py`."""
    patch = pytest.MonkeyPatch()
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # the length of a socket's path is limited
        patch.setenv("VLLM_HARNESS_STATE", str(Path(folder, "state")))
        patch.setenv(fork_server.LINGER, "300")
        command = [sys.executable, str(STARTING), folder]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, preexec_fn=_heed_hangup, **pipes) as starters:

            def started_by(limit: str) -> dict[str, Any]:
                print(limit, file=starters.stdin, flush=True)
                assert starters.stdout is not None
                answer: dict[str, Any] = json.loads(starters.stdout.readline())
                if "needs" in answer:
                    pytest.skip(answer["needs"])
                return answer

            yield started_by
            starters.communicate()
        for template in fork_server.templates():
            fork_server.end(template)
        for group in Path("/sys/fs/cgroup").rglob(f"vllm-harness-{starters.pid}"):
            group.rmdir()
    patch.undo()


@pytest.mark.parametrize("limit", ["nofile", "nice", "umask", "affinity", "oom", "mounts", "group"])
def test_a_fork_server_serves_only_starters_with_its_limits(limit: str, start: Start) -> None:
    """The first starter ends before the others start; its fork server lingers."""
    first = start(limit)
    assert first["forked"] == first["starter"]
    ordinary = start("")
    assert ordinary["starter"][limit] != first["starter"][limit]
    assert ordinary["pid"] != first["pid"]
    assert ordinary["forked"] == ordinary["starter"]
    again = start(limit)
    if limit != "mounts":  # each name space is another one
        assert (again["pid"], again["forked"]) == (first["pid"], first["forked"])
    assert start("")["pid"] == ordinary["pid"]


def test_what_a_starter_ignores_makes_no_difference(start: Start) -> None:
    """A fork server that was started under nohup serves everyone, and its servers do not ignore SIGHUP."""
    under_nohup = start("hangup")
    assert under_nohup["starter"]["hangup"]
    assert not under_nohup["forked"]["hangup"]
    assert start("")["pid"] == under_nohup["pid"]
