"""No part of a server outlives its owner, whichever process is killed, and however the owner ends."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import openai
import psutil
import pytest

from tests.choice import few, seed_of_today
from tests.faults.leftovers import pids_below
from tests.faults.owners import GONE_WITHIN_S, Owner, Owners, wait_for
from tests.faults.owning import WITH_WORKER
from vllm_harness._environments.spec import Environment
from vllm_harness._exchange.endpoint import ask
from vllm_harness._scripted.in_server.vllm_harness_names import BOOKS_PATH
from vllm_harness._server import blocks
from vllm_harness._server.launch import Launch
from vllm_harness._server.leases.ports import is_free
from vllm_harness._server.process_tree import processes_in
from vllm_harness._server.remote import RemoteServer
from vllm_harness._server.supervised import Supervised

SHOWN_EVERY = 5
DRAWN = 3


@pytest.fixture(scope="module")
def owners(environment: Environment) -> Iterator[Owners]:
    """Owners with a separate fork server, which is killed at the end and must leave nothing behind."""
    owners = Owners(environment)
    try:
        owners.warm_up()
        yield owners
    finally:
        left = owners.end()
    assert not left


Victim = Callable[[Owner], int | None]


def the_fork_server(owner: Owner) -> int | None:
    """The process id of the fork server, even if it does not listen yet."""
    return owner.owners.fork_server()


def the_model_template(owner: Owner) -> int | None:
    return owner.owners.model_template()


def the_owner(owner: Owner) -> int | None:
    return owner.pid


def the_supervisor(owner: Owner) -> int | None:
    return owner.tree()[0]


def the_api_server(owner: Owner) -> int | None:
    return owner.tree()[1]


def the_engine(owner: Owner) -> int | None:
    return owner.tree()[2]


def the_worker(owner: Owner) -> int | None:
    return owner.tree()[3]


VICTIMS = [
    *(the_owner, the_supervisor, the_model_template),
    *(the_api_server, the_engine, the_worker),
    the_fork_server,  # last, since the next server start has to import vLLM again
]
OUTLIVED = {the_fork_server, the_model_template}
"""Victims that a server can do without, even while it starts."""
CLEARED = {the_supervisor, the_api_server}
"""Victims whose death ends all processes except the owner."""


def test_the_next_run_clears_leftovers(owners: Owners) -> None:
    """If owner and supervisor are killed at the same time, the next run removes what they leave."""
    with owners.owner() as owner:
        owner.wait_until_serving()
        supervisor, *_ = owner.tree()
        assert supervisor is not None
        os.kill(owner.pid, signal.SIGSTOP)
        os.kill(supervisor, signal.SIGKILL)
        os.kill(owner.pid, signal.SIGKILL)
        wait_for(lambda: not {owner.pid, supervisor} & owners.pids())
        assert list(owner.tmp.glob("vh-*"))
        owners.sweep()
        assert not owner.left(excused=set())


@pytest.mark.parametrize("moment", ["start", "serving"])
def test_an_interrupted_owner_leaves_nothing(moment: str, owners: Owners) -> None:
    with owners.owner() as owner:
        if moment == "serving":
            owner.wait_until_serving()
        else:
            wait_for(lambda: owner.tree()[1], owner)
        os.kill(owner.pid, signal.SIGINT)
        assert not owner.left(excused=set())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Selects a few victims, drawn again every day, in runs with one kill per victim; otherwise all."""
    if "victim" in metafunc.fixturenames:
        names = {victim: victim.__name__.removeprefix("the_") for victim in VICTIMS}
        most = DRAWN if metafunc.config.option.kills == 1 else len(VICTIMS)
        drawn = few(names.values(), most, seed_of_today())
        params = [
            pytest.param(victim, id=name, marks=[] if name in drawn else pytest.mark.vllm_slow)
            for victim, name in names.items()
        ]
        metafunc.parametrize("victim", params)


@pytest.mark.timeout(7200)
def test_kill_leaves_nothing(
    victim: Victim, owners: Owners, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kills the victim with SIGKILL while the server starts or serves, and then the owner."""
    kills: int = pytestconfig.option.kills
    moments = random.Random(victim.__name__)
    left: list[str] = []
    for number in range(1, kills + 1):
        left += kill(victim, owners, moments, patient=number == 1)
        if number % SHOWN_EVERY == 0 or number == kills:
            name = victim.__name__.removeprefix("the_")
            with capsys.disabled():
                print(f"\n{number} of {kills} kills of {name}, left: {len(left)} {left[:8]}", flush=True)
    assert not left


def kill(victim: Victim, owners: Owners, moments: random.Random, *, patient: bool) -> list[str]:
    """Kills a victim of one owner, then the owner; returns what each kill has left behind.

    Args:
        patient: whether to wait until the server serves if the killed victim is not needed for its start.
    """
    left: list[str] = []
    with owners.owner() as owner:
        if moments.random() < 0.5:
            pid = wait_for(lambda: victim(owner), owner)
            owner.rest(moments.uniform(0, 1.5))
        else:
            owner.wait_until_serving()
            pid = wait_for(lambda: victim(owner), owner)
        serving = owner.serving()
        kill_victim(pid, victim, owner)
        if victim in CLEARED:
            left += owner.left(excused={owner.pid})
        if victim in OUTLIVED and (serving or patient):
            owner.wait_until_serving()
            assert ask("GET", owner.health_url(), timeout=60).ok
        owner.rest(moments.uniform(0, 1))
        left += owner.kill()
    return left


def kill_victim(pid: int, victim: Victim, owner: Owner) -> None:
    """Kills a victim with SIGKILL, or its successor if it has ended, as a template does with its base."""
    while True:
        try:
            return os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pid = wait_for(lambda: victim(owner), owner)


def test_a_killed_supervisor_leaves_nothing(launch: Callable[..., Launch]) -> None:
    with RemoteServer(launch(env=WITH_WORKER)) as server:  # the engine shares memory with the worker
        port = server.port
        folder = Path(psutil.Process(server.pid).cwd())
        server_id = folder.name.removeprefix("vh-")
        assert len(processes_in(str(folder))) > 1
        assert blocks.of_server(server_id)
        assert isinstance(server._process, Supervised)
        assert server._process.supervisor_pid
        os.kill(server._process.supervisor_pid, signal.SIGKILL)
        wait_for(lambda: not server.alive())
        assert not processes_in(str(folder))
        assert not blocks.of_server(server_id)
        assert not folder.exists()
        # a killed process loses its working folder, which identifies it, before it closes its sockets
        wait_for(lambda: is_free(port), within_s=GONE_WITHIN_S)


def test_a_dead_server_is_reported_and_restarted(launch: Callable[..., Launch]) -> None:
    from vllm_harness._server.errors import ServerDied

    with RemoteServer(launch()) as server:
        first, port = server.pid, server.port
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: not server.alive())
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


def test_the_error_of_a_dead_engine_is_reported(launch: Callable[..., Launch]) -> None:
    """A token id beyond the vocabulary crashes the engine; the harness refuses it, so the test posts it."""
    from vllm_harness._server.errors import ServerDied

    with RemoteServer(launch()) as server:
        rules = {"rules": [{"name": "beyond", "takes": [[10**6]], "left": None}]}
        server.endpoint.post(f"{BOOKS_PATH}default", json=rules, timeout=60).raise_for_status()
        with contextlib.suppress(openai.APIError):
            server.client().responses.create(model=server.model, input="hi")
        wait_for(lambda: not server.alive(), within_s=GONE_WITHIN_S)
        with pytest.raises(ServerDied) as caught:
            server.check()
        assert "index 1000000 is out of bounds" in str(caught.value)


def test_a_first_prompt_of_one_token_and_the_signal_that_ends_an_engine(
    launch: Callable[..., Launch],
) -> None:
    """A processor with AMX needs a request of the process first, which longer prompts make in passing."""
    from vllm_harness._server.errors import ServerDied

    with RemoteServer(launch()) as server:
        server.script("hello")
        answer = server.client().completions.create(model=server.model, prompt="hi")
        assert answer.usage
        assert answer.usage.prompt_tokens == 1
        assert "hello" in answer.choices[0].text
        engines = [child for child in psutil.Process(server.pid).children() if "Engine" in child.name()]
        assert engines
        engines[0].send_signal(signal.SIGILL)
        wait_for(lambda: not server.alive(), within_s=GONE_WITHIN_S)
        with pytest.raises(ServerDied) as caught:
            server.check()
        assert "EngineCore met an illegal instruction" in caught.value.message
        assert caught.value.lines[0] == "Fatal Python error: Illegal instruction"


HANGS = """
import pathlib, time
pathlib.Path({mark!r}).touch()
while True:
    time.sleep(1)
"""
PYTEST_TIMEOUT = """
import dataclasses, pathlib, pytest
from vllm_harness._environments.resolve import resolve
from vllm_harness._server.remote import RemoteServer

@pytest.mark.timeout({limit_s}, method="thread")
def test_start(request):
    real = resolve({spec!r})
    hangs = dataclasses.replace(real, pythonpath=[pathlib.Path({hangs!r}), *real.pythonpath])
    with RemoteServer("qwen3", lane="scripted", vllm=hangs, cold_start=True):
        pass
"""


@pytest.mark.timeout(900)
def test_pytest_timeout_leaves_nothing(environment: Environment, tmp_path: Path) -> None:
    """pytest-timeout ends the whole process at once, while the server's interpreter hangs."""
    hangs, mark = tmp_path / "hangs", tmp_path / "hung"
    hangs.mkdir()
    (hangs / "sitecustomize.py").write_text(HANGS.format(mark=str(mark)))
    module = tmp_path / "test_timeout.py"
    tmp = Path(tempfile.mkdtemp(prefix="vhk-", dir="/tmp"))
    for limit_s in (10, 40, 160):  # a busy machine may need more time to start the server's interpreter
        words = {"spec": f"installed:{environment.python}", "hangs": str(hangs), "limit_s": limit_s}
        module.write_text(PYTEST_TIMEOUT.format(**words))
        result = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, str(module)],
            env={**os.environ, "TMPDIR": str(tmp)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode != 0
        assert "Timeout" in result.stdout + result.stderr
        if mark.exists():
            break
    assert mark.exists()
    wait_for(lambda: not pids_below(tmp))
    assert not list(tmp.glob("vh-*"))
    shutil.rmtree(tmp)
