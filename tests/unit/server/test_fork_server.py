"""A process keeps the fork server that it uses, also one that was started anew; no other one lingers."""

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

from tests.unit.other_users.nobody import there
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
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a socket's path has its limit
        yield Path(folder, "template.sock")


def listener(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    listening.listen()
    return listening


def test_template_started_anew_is_held(path: Path) -> None:
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
    """Not a living one's, and not where another process holds the lock to start one."""
    folder = private_folder(tmp_path / "fork", "state")
    monkeypatch.setattr(fork_server, "_folder", lambda: folder)
    dead, starting, living = folder / "dead-1.sock", folder / "starting.sock", folder / "living.sock"
    for path in (dead, starting):
        listener(path).close()
    with listener(living), FileLock(starting.with_suffix(".lock")):
        fork_server._sweep()
    assert sorted(folder.glob("*.sock")) == [living, starting]


def test_a_template_that_is_ended_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = private_folder(tmp_path / "fork", "state")
    monkeypatch.setattr(fork_server, "_folder", lambda: folder)
    path = folder / "a.sock"
    with serving(path, linger_s=300) as process, connect(there(path)):
        note = {"socket": str(path), "pid": process.pid, "environment": "one"}
        path.with_suffix(".json").write_text(json.dumps(note))
        (template,) = fork_server.templates()
        fork_server.end(template)
        assert not psutil.pid_exists(process.pid)
    assert {each.suffix for each in folder.iterdir()} <= {".lock"}


def test_a_template_that_ends_takes_its_note_along(path: Path) -> None:
    note = path.with_suffix(".json")
    note.write_text("{}")
    with serving(path) as template:
        with connect(there(path)) as client:
            client.sendall(fork_server.HOLD)
        assert template.wait(20) == 0
    assert not note.exists()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_template_that_nobody_can_find_ends_with_its_last_client(path: Path, replaced: bool) -> None:
    """Its socket is gone, as with its whole folder, or is another's, which stays."""
    with serving(path, linger_s=300) as template:
        try:
            with connect(there(path)):
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


def test_templates_that_were_used_longest_ago_are_released(path: Path) -> None:
    several = [path.with_name(f"base-{number}.sock") for number in range(fork_server.MODELS_HELD + 2)]
    listening = [listener(each) for each in (path, *several)]
    try:
        assert all(fork_server._hold(each) for each in (path, *several))
        clients = [each.accept()[0] for each in listening]
        assert [client.recv(100) for client in clients] == [fork_server.HOLD] * len(clients)
        fork_server._release_oldest(fork_server.MODELS_HELD)
        assert path in fork_server._held
        assert [each for each in several if each not in fork_server._held] == several[:2]
        assert [client.recv(100) for client in clients[1:3]] == [fork_server.LEAVE] * 2
        assert [client.recv(100) for client in clients[1:3]] == [b"", b""]
    finally:
        for each in (*listening, *(fork_server._held.pop(path) for path in several[2:])):
            each.close()


def test_a_template_that_is_only_looked_for_ends(path: Path) -> None:
    with serving(path, linger_s=0.5) as template:
        try:
            with connect(there(path)) as client:
                client.sendall(fork_server.HOLD)
                with pytest.raises(subprocess.TimeoutExpired):
                    template.wait(1)
            while template.poll() is None:
                fork_server._connects(path)
            assert template.returncode == 0
        finally:
            template.kill()


def test_a_template_ends_with_a_run_that_leaves_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although who started it wanted it to linger, and still uses it then."""
    monkeypatch.setenv(fork_server.LINGER, "0")
    with serving(path, linger_s=300) as template:
        try:
            with connect(there(path)) as other:
                other.sendall(fork_server.HOLD)
                assert fork_server._hold(path)
                fork_server._held.pop(path).close()
                with pytest.raises(subprocess.TimeoutExpired):
                    template.wait(1)
            assert template.wait(20) == 0
        finally:
            template.kill()


def test_a_template_that_nobody_holds_is_dismissed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "_folder", lambda: path.parent)
    with serving(path, linger_s=300) as template:
        try:
            with connect(there(path)) as client:
                client.sendall(fork_server.HOLD)
                assert not fork_server.dismiss_unused()
            while not fork_server.dismiss_unused():  # it has yet to see that its client has left
                assert template.poll() is None
            assert template.wait(20) == 0
            assert not fork_server.dismiss_unused()
        finally:
            template.kill()


def test_a_note_lasts_as_long_as_its_template(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "_folder", lambda: path.parent)
    note = path.with_suffix(".json")
    with subprocess.Popen(["sleep", "60"]) as template:
        note.write_text(json.dumps({"socket": str(path), "pid": template.pid, "environment": "release 0"}))
        assert fork_server.templates() == []  # it still imports
        assert note.exists()
        with listener(path):
            assert [info.pid for info in fork_server.templates()] == [template.pid]
        template.kill()
    assert fork_server.templates() == []
    assert not note.exists()


def test_packages_that_are_imported_late_need_no_template_of_their_own(tmp_path: Path) -> None:
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
