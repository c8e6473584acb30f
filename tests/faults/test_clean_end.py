"""Nothing of a server outlives its owner, however the owner ends."""

from __future__ import annotations

import contextlib
import json
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
from typing import TypeVar

import psutil
import pytest

from harness.environments.spec import Environment
from harness.server.launch import Launch
from harness.server.ports import is_free
from harness.server.process_tree import processes_in
from harness.server.remote import RemoteServer
from harness.server.supervised import Supervised

OWNER = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job is born deaf to it
from harness.server.remote import RemoteServer
with RemoteServer("qwen3", lane="scripted", vllm=sys.argv[1]) as server:
    server.script("words")
    server.client().responses.create(model=server.model, input="hi")
    print("serving", flush=True)
    sys.stdin.read()
"""
GONE_WITHIN_S = 60
STARTS_WITHIN_S = 300
T = TypeVar("T")


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


def template_of(state: Path) -> int | None:
    """Process id of the fork server of a state folder, once it listens."""
    for note in state.glob("fork/*.json"):
        if note.with_suffix(".sock").exists():
            return int(json.loads(note.read_text())["pid"])
    return None


def wait_for(look: Callable[[], T | None]) -> T:
    """What `look` finds in the end."""
    deadline = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError(f"nothing found by {look}")


def server_pids(tmp: Path) -> list[int]:
    """Process ids of the servers whose folders are made in a temporary folder."""
    return sorted(process.pid for folder in tmp.glob("vh-*") for process in processes_in(str(folder)))


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
    """A process that owns a server, as a test run does.

    Args:
        own_fork_server: not the one that other tests share.
    """

    def __init__(self, environment: Environment, *, own_fork_server: bool = False) -> None:
        # short, so that the server's own folder is made in it: a socket's path has its limit
        self.tmp = Path(tempfile.mkdtemp(prefix="vhk-", dir="/tmp"))
        self.state = Path(tempfile.mkdtemp(prefix="vhk-", dir="/tmp"))
        own = {"VLLM_HARNESS_STATE": str(self.state), "VLLM_HARNESS_LINGER_S": "0"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, f"installed:{environment.python}"],
            env={**os.environ, "TMPDIR": str(self.tmp), **(own if own_fork_server else {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
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
        left = survivors(self.tmp) + survivors(self.state)
        left += [str(path) for path in (*self.tmp.iterdir(), *blocks) if path.exists()]
        shutil.rmtree(self.tmp)
        shutil.rmtree(self.state)
        return left


def shared_memory(processes: list[psutil.Process]) -> set[Path]:
    """The POSIX shared memory that processes map."""
    blocks = set()
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            blocks |= {Path(each.path) for each in process.memory_maps() if each.path.startswith("/dev/shm/")}
    return blocks


def kill_owner(owner: Owner, moments: random.Random) -> None:
    """At any moment of the start-up."""
    time.sleep(moments.uniform(0.1, 4))


def kill_fork_server(owner: Owner, moments: random.Random) -> None:
    """Once it answers: before it forks, while the server starts, or while it serves."""
    template = wait_for(lambda: template_of(owner.state))
    time.sleep(moments.uniform(0, 5))
    os.kill(template, signal.SIGKILL)
    owner.wait_until_serving()


def kill_server(owner: Owner, moments: random.Random) -> None:
    """API server, engine or worker, while it starts or serves."""
    wait_for(lambda: server_pids(owner.tmp))
    time.sleep(moments.uniform(0, 3))
    os.kill(moments.choice(server_pids(owner.tmp)), signal.SIGKILL)
    time.sleep(moments.uniform(0, 1))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kill", [kill_owner, kill_fork_server, kill_server])
def test_kill_leaves_nothing(
    kill: Callable[[Owner, random.Random], None], environment: Environment, pytestconfig: pytest.Config
) -> None:
    """kill -9 at random moments; in the end the owner goes the same way."""
    kills = pytestconfig.option.kills
    moments = random.Random(0)
    left = []
    for _ in range(kills):
        owner = Owner(environment, own_fork_server=kill is kill_fork_server)
        kill(owner, moments)
        left += owner.end(signal.SIGKILL)
    print(f"{kills} times {kill.__name__}, {len(left)} survivors")
    assert not left


@pytest.mark.timeout(3600)
def test_killed_owner_of_a_serving_server_leaves_nothing(
    environment: Environment, pytestconfig: pytest.Config
) -> None:
    left = []
    for _ in range(max(1, pytestconfig.option.kills // 4)):
        owner = Owner(environment)
        owner.wait_until_serving()
        left += owner.end(signal.SIGKILL)
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
    with RemoteServer("qwen3", lane="scripted", vllm={spec!r}, cold_start=True):
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
