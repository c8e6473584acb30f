"""Nothing of a server outlives its owner, however the owner ends."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness.environments.spec import Environment
from harness.server.launch import Launch
from harness.server.ports import is_free
from harness.server.remote import RemoteServer
from harness.server.supervised import Supervised

OWNER = """
import sys
from harness.server.remote import RemoteServer
with RemoteServer("qwen3", lane="scripted", vllm=sys.argv[1]) as server:
    server.script("words")
    server.client().responses.create(model=server.model, input="hi")
    print("serving", flush=True)
    sys.stdin.read()
"""
GONE_WITHIN_S = 30


def processes_below(folder: Path) -> list[psutil.Process]:
    """Every process that works in the folder or has it as its TMPDIR, forked or not."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            places = (process.cwd(), process.environ().get("TMPDIR", ""))
            below = any(place == str(folder) or place.startswith(f"{folder}/") for place in places)
            if below and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def survivors(folder: Path) -> list[str]:
    """What is left of a tree and of its servers' folders once it has had time to end."""
    deadline = time.monotonic() + GONE_WITHIN_S
    while time.monotonic() < deadline:
        left = [f"pid {process.pid}" for process in processes_below(folder)]
        left += [str(path) for path in folder.glob("vh-*")]
        if not left:
            break
        time.sleep(0.2)
    return left


class Owner:
    """A process that owns a server, as a test run does."""

    def __init__(self, environment: Environment) -> None:
        # short, so that the server's own folder is made in it: a socket's path has its limit
        self.tmp = Path(tempfile.mkdtemp(prefix="vhk-", dir="/tmp"))
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, f"installed:{environment.python}"],
            env={**os.environ, "TMPDIR": str(self.tmp)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_until_serving(self) -> None:
        """Returns when the server has answered a request."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "serving\n"

    def end(self, number: signal.Signals) -> list[str]:
        """Sends the signal; returns what is left: processes, temporary files, shared memory."""
        blocks = shared_memory(processes_below(self.tmp))
        self.process.send_signal(number)
        self.process.wait(60)
        left = survivors(self.tmp)
        left += [str(path) for path in (*self.tmp.iterdir(), *blocks) if path.exists()]
        shutil.rmtree(self.tmp)
        return left


def shared_memory(processes: list[psutil.Process]) -> set[Path]:
    """The POSIX shared memory that processes map."""
    blocks = set()
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            blocks |= {Path(each.path) for each in process.memory_maps() if each.path.startswith("/dev/shm/")}
    return blocks


@pytest.mark.timeout(3600)
def test_killed_owner_leaves_nothing(environment: Environment, pytestconfig: pytest.Config) -> None:
    """kill -9 at random moments of the start-up, every fourth time while serving."""
    kills = pytestconfig.option.kills
    moments = random.Random(0)
    left = []
    for number in range(kills):
        owner = Owner(environment)
        if number % 4 == 3:
            owner.wait_until_serving()
            time.sleep(moments.uniform(0, 1))
        else:
            time.sleep(moments.uniform(0.1, 12))
        left += owner.end(signal.SIGKILL)
    print(f"{kills} kills, {len(left)} survivors")
    assert not left


def test_interrupted_owner_leaves_nothing(environment: Environment) -> None:
    owner = Owner(environment)
    time.sleep(8)
    assert not owner.end(signal.SIGINT)


def test_killed_supervisor_leaves_nothing(launch: Callable[..., Launch]) -> None:
    server = RemoteServer(launch())
    with server:
        port = server.port
        folder = Path(psutil.Process(server.pid).cwd())
        assert processes_below(folder)
        assert isinstance(server._process, Supervised)
        assert server._process.supervisor_pid
        os.kill(server._process.supervisor_pid, signal.SIGKILL)
        time.sleep(1)
    assert not survivors(folder)
    assert not folder.exists()
    assert is_free(port)


def test_server_that_died_is_told_and_restarted(launch: Callable[..., Launch]) -> None:
    from harness.server.errors import ServerDied

    with RemoteServer(launch()) as server:
        first, port = server.pid, server.port
        os.kill(first, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while server.alive() and time.monotonic() < deadline:
            time.sleep(0.1)
        with pytest.raises(ServerDied) as caught:
            server.check()
        assert caught.value.log_path == server.log_path
        server.restart()
        assert server.port == port
        assert server.pid != first
        server.script("again")
        answer = server.client().responses.create(model=server.model, input="hi")
        assert "again" in answer.output_text
        log = server.log_path
    assert log.exists()
    assert not Path(server.launch.environ().get("TMPDIR", "/nonexistent/vh")).name.startswith("vh-")


PYTEST_TIMEOUT = """
import pytest
from harness.server.remote import RemoteServer

@pytest.mark.timeout(6, method="thread")
def test_start(request):
    with RemoteServer("qwen3", lane="scripted", vllm={spec!r}):
        pass
"""


def test_pytest_timeout_leaves_nothing(environment: Environment, tmp_path: Path) -> None:
    module = tmp_path / "test_timeout.py"
    module.write_text(PYTEST_TIMEOUT.format(spec=f"installed:{environment.python}"))
    tmp = Path(tempfile.mkdtemp(prefix="vhk-", dir="/tmp"))
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, str(module)],
        env={**os.environ, "TMPDIR": str(tmp)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode != 0
    assert "Timeout" in result.stdout + result.stderr
    assert not survivors(tmp)
    shutil.rmtree(tmp)
