"""Clean-up after servers, with small programs instead of vLLM."""

from __future__ import annotations

import os
import re
import resource
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from vllm_harness._scripted.in_server.vllm_harness_names import SERVER_ID
from vllm_harness._server import blocks, process_tree
from vllm_harness._server.launch import IN_SERVER
from vllm_harness._server.process_tree import clear, ids_alive, processes_in
from vllm_harness._server.records import ServerRecord, records_folder, running, sweep
from vllm_harness._server.supervised import SUPERVISOR, Supervised
from vllm_harness._server.supervisor import started

NAMES = """
import multiprocessing as m
from multiprocessing.shared_memory import SharedMemory

def show():
    block = SharedMemory(create=True, size=8)
    print("block", block.name, flush=True)
    block.unlink()

if __name__ == "__main__":
    spawn = m.get_context("spawn")
    print("semaphore", spawn.Lock()._semlock.name, flush=True)
    show()
    for method in ("spawn", "fork"):
        child = m.get_context(method).Process(target=show)
        child.start()
        child.join()
"""
MAPS = """
import mmap, os, sys, time
for path in sys.argv[2:]:
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, 4096)
    globals()[path] = mmap.mmap(file, 4096)
if sys.argv[1] == "twice":
    os.fork()
print("mapped", flush=True)
while True:
    time.sleep(60)
"""

FINISHES = """
import os, signal, sys, time
child = os.fork()
if child == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(1, b"deaf\\n")
    time.sleep(3600)

def finish(*_):
    os.write(1, b"finishing\\n")
    os.waitpid(child, 0)
    sys.exit()

signal.signal(signal.SIGTERM, finish)
os.write(1, b"child %d\\n" % child)
while True:
    time.sleep(60)
"""
"""A server with a child that ignores SIGTERM, and for whose end it waits after SIGTERM."""

WRITES = """
import pathlib, time
from vllm_harness._server.records import ServerRecord

pathlib.Path.replace = lambda *_: time.sleep(600)
ServerRecord(
    server_id="id1", tmp="tmp", name="m", lane="live", environment="env", log="log", port=1
).write()
"""


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_HARNESS_STATE", str(tmp_path / "state"))


@pytest.fixture
def server_id() -> Iterator[str]:
    """An id that no server has; shared memory blocks with this id are removed afterwards."""
    server_id = secrets.token_hex(6)
    yield server_id
    blocks.remove(blocks.of_server(server_id))


def wait_until(look: Callable[[], object]) -> None:
    while not look():
        time.sleep(0.01)


def names_under(env: dict[str, str], tmp_path: Path) -> list[list[str]]:
    program = tmp_path / "names.py"
    program.write_text(NAMES)
    result = subprocess.run(
        [sys.executable, str(program)], env={**os.environ, **env}, capture_output=True, text=True, check=True
    )
    return [line.split() for line in result.stdout.splitlines()]


def test_shared_memory_of_a_server_bears_its_id(tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(IN_SERVER)}
    named = names_under({**env, SERVER_ID: "0123456789ab"}, tmp_path)
    assert [kind for kind, _ in named] == ["semaphore", "block", "block", "block"]
    assert all(name.lstrip("/").startswith("vh-0123456789ab-") for _, name in named)
    assert len({name for _, name in named}) == 4
    assert not any("vh-" in name for _, name in names_under(env, tmp_path))


def test_another_sitecustomize_is_also_loaded(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.theirs = __name__\n")
    env = {**os.environ, "PYTHONPATH": f"{IN_SERVER}{os.pathsep}{tmp_path}"}
    show = [sys.executable, "-c", "import sys, sitecustomize; print(sys.theirs, sitecustomize.__file__)"]
    words = subprocess.run(show, env=env, capture_output=True, text=True, check=True).stdout.split()
    assert words == ["sitecustomize", str(tmp_path / "sitecustomize.py")]


def config_of(server_id: str, tmp_path: Path, argv: list[str], **changed: Any) -> dict[str, Any]:
    return {
        "owner": os.getpid(),
        "owner_started": started(os.getpid()),
        "server_id": server_id,
        "earlier_blocks": sorted(blocks.names()),
        "record": str(tmp_path / "record.json"),
        "argv": argv,
        "env": {**os.environ},
        "log": str(tmp_path / "log"),
        "log_limit": 10000,
        "tmp": str(tmp_path / f"vh-{server_id}"),
        "secrets": [],
        "grace_s": 10.0,
        **changed,
    }


def maps(how: str, *names: str) -> list[str]:
    return [sys.executable, "-c", MAPS, how, *(str(blocks.FOLDER / name) for name in names)]


def nothing_left(config: dict[str, Any]) -> bool:
    return not (
        Path(config["tmp"]).exists()
        or processes_in(config["tmp"])
        or Path(config["record"]).exists()
        or blocks.of_server(config["server_id"])
    )


@pytest.mark.parametrize("killed", ["server", "supervisor"])
def test_a_kill_leaves_no_shared_memory(killed: str, server_id: str, tmp_path: Path) -> None:
    """A shared memory block that existed before the server stays."""
    native, earlier = f"native-{server_id}", f"earlier-{server_id}"
    (blocks.FOLDER / earlier).touch()
    argv = maps("twice", f"vh-{server_id}-1", f"sem.vh-{server_id}-2", native, earlier)
    config = config_of(server_id, tmp_path, argv)
    Path(config["record"]).touch()
    server = Supervised(config)
    wait_until(lambda: Path(config["log"]).exists() and Path(config["log"]).read_text().count("mapped") == 2)
    victim = server.pid() if killed == "server" else server.supervisor_pid
    assert victim
    os.kill(victim, signal.SIGKILL)
    assert server.end() == []
    assert nothing_left(config)
    assert native not in blocks.names()
    (blocks.FOLDER / earlier).unlink()


def finishing(config: dict[str, Any]) -> tuple[Supervised, int]:
    """Starts a server with a child that ignores SIGTERM; returns the server, and the child's process id."""
    server, log = Supervised(config), Path(config["log"])
    wait_until(lambda: log.exists() and log.read_text().count("\n") == 2)
    return server, int(re.findall(r"child (\d+)", log.read_text())[0])


@pytest.mark.parametrize("moment", ["killed", "killed while it serves", "ended before it serves"])
def test_no_grace_without_a_request_to_finish(moment: str, server_id: str, tmp_path: Path) -> None:
    """What is left of a killed server, and a server that is still starting, are killed at once."""
    argv = [sys.executable, "-c", FINISHES]
    server, child = finishing(config_of(server_id, tmp_path, argv, grace_s=3600.0))
    pid = server.pid()
    assert pid
    if moment == "killed while it serves":
        server.ready()
    if moment.startswith("killed"):
        os.kill(pid, signal.SIGKILL)
    else:
        server._handle.control.close()
    assert server._wait_for({"eof"}, 60)
    assert child in server._messages["ended"]["killed"]
    assert server.exit_code == (-signal.SIGKILL if moment.startswith("killed") else None)
    assert server.ended
    assert server.end() == []


def test_a_server_that_serves_may_finish(server_id: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", FINISHES]
    server, child = finishing(config_of(server_id, tmp_path, argv, grace_s=3600.0))
    server.ready()
    server._handle.control.close()
    wait_until(lambda: "finishing" in (tmp_path / "log").read_text())
    assert psutil.pid_exists(child)
    os.kill(child, signal.SIGKILL)
    assert server._wait_for({"eof"}, 60)
    assert server._messages["ended"]["killed"] == []
    assert server.end() == []


def test_processes_that_are_found_late_are_killed(
    server_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a very busy machine, listing all processes may take longer than the wait for their end."""
    processes_of, wait_s = process_tree.processes_of, 0.2

    def late(*server: str) -> list[psutil.Process]:
        processes = processes_of(*server)
        time.sleep(2 * wait_s)
        return processes

    monkeypatch.setattr(process_tree, "processes_of", late)
    folder, native = tmp_path / f"vh-{server_id}", f"native-{server_id}"
    folder.mkdir()
    earlier = sorted(blocks.names())
    with subprocess.Popen(maps("once", native), cwd=folder, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        try:
            assert clear(server_id, str(folder), earlier, wait_s) == []
            assert native not in blocks.names()
        finally:
            server.kill()
            blocks.remove([native])


def test_a_supervisor_of_a_dead_owner_makes_nothing(server_id: str, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as owner:
        owner_started = started(owner.pid)
    config = config_of(server_id, tmp_path, ["sleep", "1000"], owner=owner.pid, owner_started=owner_started)
    server = Supervised(config)
    assert server.pid() is None
    assert server.end() == []
    assert nothing_left(config)


def test_a_later_process_with_the_id_of_the_owner_is_not_the_owner(server_id: str, tmp_path: Path) -> None:
    config = config_of(server_id, tmp_path, ["sleep", "1000"], owner_started=1)
    assert Supervised(config).pid() is None
    assert nothing_left(config)


def test_a_supervisor_without_its_whole_configuration_ends() -> None:
    command = [sys.executable, "-I", str(SUPERVISOR)]
    result = subprocess.run(command, input=b'{"owner": 1, "argv"', capture_output=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (1, b"", b"")


def test_an_existing_folder_is_left_alone(server_id: str, tmp_path: Path) -> None:
    config = config_of(server_id, tmp_path, ["sleep", "1000"])
    taken = Path(config["tmp"])
    taken.mkdir()
    (taken / "file").touch()
    server = Supervised(config)
    assert server.pid() is None
    assert "exists" in (server.failure or "")
    server.end()
    assert (taken / "file").exists()


def record_of(server_id: str, tmp: Path, owner: int, owner_started: int) -> ServerRecord:
    return ServerRecord(
        server_id=server_id,
        tmp=str(tmp),
        name="m",
        lane="live",
        environment="env",
        log="log",
        port=1,
        owner=owner,
        owner_started=owner_started,
    )


def test_only_servers_of_dead_owners_are_swept(server_id: str, tmp_path: Path) -> None:
    """A server without a supervisor stays while its owner lives, as the owner may be starting it."""
    left = tmp_path / f"vh-{server_id}"
    left.mkdir()
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as owner,
        subprocess.Popen(maps("once", f"vh-{server_id}-1"), cwd=left, stdout=subprocess.PIPE) as server,
    ):
        assert server.stdout is not None
        server.stdout.readline()
        record = record_of(server_id, left, owner.pid, started(owner.pid) or 0)
        record.write()
        assert sweep() == []
        assert left.exists()
        assert server_id in ids_alive()
        assert running() == []
        owner.kill()
        owner.wait()
        assert sweep() == [record]
        assert server.wait() == -signal.SIGKILL
    assert not left.exists()
    assert not blocks.of_server(server_id)
    assert not list(records_folder().iterdir())


def test_half_written_records_of_dead_writers_are_removed() -> None:
    """A file that names no writer, as one from another version of the harness, is removed too."""
    (records_folder() / "id0.half").touch()
    with subprocess.Popen([sys.executable, "-c", WRITES]) as writer:
        wait_until(lambda: len(list(records_folder().glob("id1.*.half"))) == 1)
        sweep()
        assert [path.name.split(".")[0] for path in records_folder().iterdir()] == ["id1"]
        writer.kill()
    sweep()
    assert not list(records_folder().iterdir())


def test_old_unmapped_memory_without_a_record_is_removed(
    server_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped, unmapped, earlier = f"vh-{server_id}-1", f"vh-{server_id}-2", f"psm_{server_id}"
    for name in (unmapped, earlier):
        (blocks.FOLDER / name).touch()
    with subprocess.Popen(maps("once", mapped), stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        sweep()
        assert blocks.of_server(server_id) == {mapped, unmapped}
        assert blocks.orphans([]) & {mapped, unmapped} == set()
        monkeypatch.setattr(blocks, "ORPHAN_S", -1.0)
        assert blocks.orphans([server_id]) & {mapped, unmapped} == set()
        assert blocks.orphans([]) & {mapped, unmapped, earlier} == {unmapped}
        holder.kill()
    (blocks.FOLDER / earlier).unlink()


def test_the_start_of_a_process_identifies_it() -> None:
    assert started(os.getpid()) == started(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert (started(child.pid) or 0) >= (started(os.getpid()) or 0)
        child.kill()
        wait_until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)
        assert started(child.pid) is None
    assert not psutil.pid_exists(child.pid)
    assert started(child.pid) is None


def test_a_process_is_not_taken_for_ended_when_files_cannot_be_opened() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            started(os.getpid())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
