"""The fork server lives as long as its users, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from filelock import FileLock

from tests.unit.other_users.nobody import wait_for_path
from tests.unit.server.template import serving
from vllm_harness._configuration.model_entries import load_models
from vllm_harness._environments.spec import Environment
from vllm_harness._files.folders import private_folder
from vllm_harness._files.paths import STATE, cache_dir
from vllm_harness._server import fork_server
from vllm_harness._server.launch import Launch
from vllm_harness._server.private_socket import connect
from vllm_harness._server.supervisor import started

END_S = 60


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv(fork_server.LINGER, raising=False)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # the length of a socket's path is limited
        yield Path(folder, "template.sock")


def listener(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    listening.listen()
    return listening


def note_about(pid: int, path: Path, *, later: int = 0) -> Path:
    """Writes a starter's note about a template; `later` is added to the template's start time."""
    note = path.with_suffix(".json")
    named = {"socket": str(path), "pid": pid, "started": (started(pid) or 0) + later}
    note.write_text(json.dumps({**named, "environment": "release 0"}))
    return note


def socket_of(path: Path) -> int | None:
    """The inode of the socket at a path; None if there is none."""
    return path.lstat().st_ino if path.exists() else None


def test_a_restarted_template_is_held(path: Path) -> None:
    with listener(path) as first:
        assert fork_server._hold(path)
        first.accept()[0].close()
    assert not fork_server._hold(path)
    with listener(path) as second:
        assert fork_server._hold(path)
        client = second.accept()[0]
        client.settimeout(0.1)
        assert client.recv(100) == fork_server.HOLD
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.close()


def test_a_template_is_held_once(path: Path) -> None:
    with listener(path) as only:
        assert fork_server._hold(path)
        assert fork_server._hold(path)
        only.accept()[0].close()
        only.settimeout(0.1)
        with pytest.raises(TimeoutError):
            only.accept()


def test_the_socket_of_a_killed_template_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sockets of a living template, and of one that another process is starting, stay."""
    folder = private_folder(tmp_path / "fork", STATE)
    monkeypatch.setattr(fork_server, "_folder", lambda: folder)
    dead, starting, living = folder / "dead-1.sock", folder / "starting.sock", folder / "living.sock"
    for path in (dead, starting):
        listener(path).close()
    with listener(living), FileLock(starting.with_suffix(".lock")):
        fork_server._sweep()
    assert sorted(folder.glob("*.sock")) == [living, starting]


def test_an_ended_template_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = private_folder(tmp_path / "fork", STATE)
    monkeypatch.setattr(fork_server, "_folder", lambda: folder)
    path = folder / "a.sock"
    with serving(path, linger_s=300) as process, connect(wait_for_path(path)):
        note_about(process.pid, path)
        (template,) = fork_server.templates()
        fork_server.end(template)
        assert process.wait(END_S) == -signal.SIGTERM
    assert {file.suffix for file in folder.iterdir()} <= {".lock"}


def test_a_template_removes_its_note_at_its_end(path: Path) -> None:
    with serving(path) as template:
        with connect(wait_for_path(path)) as client:
            note = note_about(template.pid, path)
            client.sendall(fork_server.HOLD)
        assert template.wait(END_S) == 0
    assert not note.exists()


def test_a_template_leaves_its_files_to_the_starter_of_its_successor(path: Path) -> None:
    """The starter, which has the lock, may be about to replace them."""
    with serving(path) as template, FileLock(path.with_suffix(".lock")):
        with connect(wait_for_path(path)) as client:
            note = note_about(template.pid, path)
            client.sendall(fork_server.HOLD)
        assert template.wait(END_S) == 0
        assert note.exists()
        assert path.exists()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_template_without_its_socket_ends_with_its_last_client(path: Path, replaced: bool) -> None:
    """The template's socket is removed, or replaced with another socket, which stays."""
    with serving(path, linger_s=300) as template:
        try:
            with connect(wait_for_path(path)):
                path.unlink()
                other = listener(path) if replaced else None
                with pytest.raises(subprocess.TimeoutExpired):
                    template.wait(1)
            assert template.wait(END_S) == 0
        finally:
            template.kill()
    assert path.exists() == replaced
    if other:
        other.close()


def test_the_least_recently_used_templates_are_released(path: Path) -> None:
    several = [path.with_name(f"base-{number}.sock") for number in range(fork_server.MODELS_HELD + 2)]
    listening = [listener(socket_path) for socket_path in (path, *several)]
    try:
        assert all(fork_server._hold(socket_path) for socket_path in (path, *several))
        clients = [server.accept()[0] for server in listening]
        assert [client.recv(100) for client in clients] == [fork_server.HOLD] * len(clients)
        fork_server._release_oldest(fork_server.MODELS_HELD)
        assert path in fork_server._held
        assert [released for released in several if released not in fork_server._held] == several[:2]
        assert [client.recv(100) for client in clients[1:3]] == [fork_server.LEAVE] * 2
        assert [client.recv(100) for client in clients[1:3]] == [b"", b""]
    finally:
        for server in (*listening, *(fork_server._held.pop(path) for path in several[2:])):
            server.close()


def test_connecting_does_not_prolong_the_life_of_a_template(path: Path) -> None:
    with serving(path, linger_s=0.5) as template:
        try:
            with connect(wait_for_path(path)) as client:
                client.sendall(fork_server.HOLD)
                with pytest.raises(subprocess.TimeoutExpired):
                    template.wait(1)
            while template.poll() is None:
                fork_server._connects(path)
            assert template.returncode == 0
        finally:
            template.kill()


def test_a_run_without_lingering_ends_the_template(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends after its last client, even if the process that started it wanted it to linger."""
    monkeypatch.setenv(fork_server.LINGER, "0")
    with serving(path, linger_s=300) as template:
        try:
            with connect(wait_for_path(path)) as other:
                other.sendall(fork_server.HOLD)
                assert fork_server._hold(path)
                fork_server._held.pop(path).close()
                with pytest.raises(subprocess.TimeoutExpired):
                    template.wait(1)
            assert template.wait(END_S) == 0
        finally:
            template.kill()


def test_an_unused_template_is_dismissed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "_folder", lambda: path.parent)
    with serving(path, linger_s=300) as template:
        try:
            with connect(wait_for_path(path)) as client:
                client.sendall(fork_server.HOLD)
                assert not fork_server.dismiss_unused()
            while not fork_server.dismiss_unused():  # it may not have noticed yet that its client is gone
                assert template.poll() is None
            assert template.wait(END_S) == 0
            assert not fork_server.dismiss_unused()
        finally:
            template.kill()


ORPHAN = """
import os, sys, time
from pathlib import Path
import vllm_harness_template as template
def import_all():
    Path(sys.argv[1]).with_name("importing").touch()
    while not Path(sys.argv[1]).with_name("imported").exists():
        time.sleep(0.02)
template.import_all, template.apply_patches = import_all, lambda: None
template.main()
"""


@pytest.mark.parametrize("ends", ["before it listens", "before its first client", "after its clients"])
def test_an_orphan_leaves_the_note_and_socket_of_its_successor(
    ends: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server, "_folder", lambda: path.parent)
    monkeypatch.setenv("PYTHONPATH", str(fork_server.FORKING))
    imported = path.with_name("imported")
    # the cat is the starter, which ends when its input is closed
    script = 'exec 3<&0; "$@" $$ </dev/null 3<&- & echo $!; exec cat <&3 >/dev/null'
    command = ["sh", "-c", script, "sh", sys.executable, "-c", ORPHAN, str(path), "300"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdin is not None
        assert starter.stdout is not None
        orphan = psutil.Process(int(starter.stdout.readline()))
        note_about(orphan.pid, path)
        wait_for_path(path.with_name("importing"))
        held = None
        if ends != "before it listens":
            imported.touch()
            if ends == "after its clients":
                held = connect(wait_for_path(path))
                held.sendall(fork_server.HOLD)
            wait_for_path(path)
            orphan.suspend()
        first = socket_of(path)
        starter.stdin.close()
        starter.wait(END_S)
        with serving(path, linger_s=300) as successor:
            note = note_about(successor.pid, path).read_text()
            while socket_of(path) == first:
                time.sleep(0.02)
            with connect(path) as client:
                client.sendall(fork_server.HOLD)
                socket_file = socket_of(path)
                imported.touch()
                orphan.resume()
                if held:
                    held.close()
                orphan.wait(END_S)
                assert socket_of(path) == socket_file
                assert path.with_suffix(".json").read_text() == note
                assert [info.pid for info in fork_server.templates()] == [successor.pid]
                (template,) = fork_server.templates()
                fork_server.end(template)
            assert successor.wait(END_S) is not None


def test_a_note_about_another_process_with_the_same_id_is_swept(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note of a template that is being started stays."""
    monkeypatch.setattr(fork_server, "_folder", lambda: path.parent)
    note = note_about(os.getpid(), path, later=1)
    with listener(path):
        assert fork_server.templates() == []
    with FileLock(path.with_suffix(".lock")):
        fork_server._sweep()
        assert note.exists()
    fork_server._sweep()
    assert not note.exists()


def test_a_note_is_removed_after_its_template(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "_folder", lambda: path.parent)
    note = path.with_suffix(".json")
    with subprocess.Popen(["sleep", "60"]) as template:
        note_about(template.pid, path)
        assert fork_server.templates() == []  # the template is still importing modules
        fork_server._sweep()
        assert note.exists()
        with listener(path):
            assert [info.pid for info in fork_server.templates()] == [template.pid]
        template.kill()
    assert fork_server.templates() == []
    fork_server._sweep()
    assert not note.exists()


def test_packages_that_are_imported_late_are_not_part_of_the_key(tmp_path: Path) -> None:
    entry = load_models().get("gpt-oss")
    environment = Environment("release", tmp_path / "python", "3.12", "0.32.0", "cpu", None)
    launch = Launch(entry, "scripted", environment, str(tmp_path), ())
    own, late = str(tmp_path / "own"), str(cache_dir() / "overlays" / "gpt-oss")

    def key(path: str, **more: str) -> str:
        return fork_server._key(launch, {"PYTHONPATH": path, **more})

    plain = key(own)
    assert key(os.pathsep.join([own, late]), PYTHON_EXECUTION_BACKEND="dangerously_use_uv") == plain
    assert key(os.pathsep.join([own, str(tmp_path / "other")])) != plain
    assert fork_server._of_template({"PYTHONPATH": os.pathsep.join([own, late])}) == {"PYTHONPATH": own}
