"""The fork server lives as long as its users, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
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
from vllm_harness._files.paths import cache_dir
from vllm_harness._server import fork_server
from vllm_harness._server.launch import Launch
from vllm_harness._server.private_socket import connect


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


def test_a_killed_template_s_socket_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sockets of a living template, and of one that another process is starting, stay."""
    folder = private_folder(tmp_path / "fork", "state")
    monkeypatch.setattr(fork_server, "_folder", lambda: folder)
    dead, starting, living = folder / "dead-1.sock", folder / "starting.sock", folder / "living.sock"
    for path in (dead, starting):
        listener(path).close()
    with listener(living), FileLock(starting.with_suffix(".lock")):
        fork_server._sweep()
    assert sorted(folder.glob("*.sock")) == [living, starting]


def test_an_ended_template_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = private_folder(tmp_path / "fork", "state")
    monkeypatch.setattr(fork_server, "_folder", lambda: folder)
    path = folder / "a.sock"
    with serving(path, linger_s=300) as process, connect(wait_for_path(path)):
        note = {"socket": str(path), "pid": process.pid, "environment": "one"}
        path.with_suffix(".json").write_text(json.dumps(note))
        (template,) = fork_server.templates()
        fork_server.end(template)
        assert not psutil.pid_exists(process.pid)
    assert {file.suffix for file in folder.iterdir()} <= {".lock"}


def test_a_template_removes_its_note_at_its_end(path: Path) -> None:
    note = path.with_suffix(".json")
    note.write_text("{}")
    with serving(path) as template:
        with connect(wait_for_path(path)) as client:
            client.sendall(fork_server.HOLD)
        assert template.wait(20) == 0
    assert not note.exists()


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
            assert template.wait(20) == 0
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
            assert template.wait(20) == 0
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
            assert template.wait(20) == 0
            assert not fork_server.dismiss_unused()
        finally:
            template.kill()


def test_a_note_is_removed_after_its_template(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "_folder", lambda: path.parent)
    note = path.with_suffix(".json")
    with subprocess.Popen(["sleep", "60"]) as template:
        note.write_text(json.dumps({"socket": str(path), "pid": template.pid, "environment": "release 0"}))
        assert fork_server.templates() == []  # the template is still importing modules
        assert note.exists()
        with listener(path):
            assert [info.pid for info in fork_server.templates()] == [template.pid]
        template.kill()
    assert fork_server.templates() == []
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
