"""Each end of a fork server's socket checks the user at the other end before sending anything."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest

from tests.unit.other_users.nobody import Nobody, given_to_nobody, needs_root, reachable_folder, wait_for_path
from tests.unit.server.template import serving
from vllm_harness._server import fork_server
from vllm_harness._server.private_socket import OtherUserAnswers, connect


def listening(path: Path) -> int:
    """Listens for one client; returns the total number of bytes and file descriptors that it sent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(f"{path}.half")
        listener.listen()
        Path(f"{path}.half").rename(path)
        data, descriptors, _, _ = socket.recv_fds(listener.accept()[0], 1000, 8)
        return len(data) + len(descriptors)


@needs_root
def test_another_user_gets_neither_configuration_nor_descriptors() -> None:
    with reachable_folder() as folder:
        given_to_nobody(folder)
        other = Nobody(lambda: listening(folder / "a.sock"))
        before = set(Path("/proc/self/fd").iterdir())
        with pytest.raises(OtherUserAnswers) as caught:
            fork_server.spawn({"env": {"OPENAI_API_KEY": "secret"}}, wait_for_path(folder / "a.sock"))
        assert set(Path("/proc/self/fd").iterdir()) == before
        assert other.exit_code() == 0
    assert f"pid {other.pid} of another user (uid 65534)" in str(caught.value)
    assert str(folder / "a.sock") in str(caught.value)


@needs_root
def test_a_process_of_another_user_is_not_held() -> None:
    with reachable_folder() as folder:
        given_to_nobody(folder)
        other = Nobody(lambda: listening(folder / "a.sock"))
        with pytest.raises(OtherUserAnswers):
            fork_server._hold(wait_for_path(folder / "a.sock"))
        assert other.exit_code() == 0
        assert folder / "a.sock" not in fork_server._held


@needs_root
def test_a_template_reads_nothing_from_another_user() -> None:
    def connect_and_send() -> int:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(str(folder / "a.sock"))
            client.sendall(b'{"op": "leave"}\n')
            client.settimeout(60)
            return len(client.recv(100))

    with reachable_folder() as folder:
        template = serving(folder / "a.sock")
        with connect(wait_for_path(folder / "a.sock")) as ours:
            (folder / "a.sock").chmod(0o666)
            other = Nobody(connect_and_send)
            assert other.exit_code() in (0, 1)  # the server closed or reset the connection
            assert template.poll() is None
            ours.sendall(b'{"op": "leave"}\n')
        output, _ = template.communicate(timeout=60)
    assert f"refused: a client of another user (pid {other.pid}, uid 65534)" in output


@pytest.mark.parametrize("length", [10, 200])
def test_the_length_of_the_path_does_not_matter(length: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "x" * length)
        folder.mkdir()
        template = serving(folder / "a.sock")
        with connect(wait_for_path(folder / "a.sock")) as client:
            assert fork_server._open(client)
            assert [path.name for path in folder.iterdir()] == ["a.sock"]
            client.sendall(b'{"op": "leave"}\n')
        template.communicate(timeout=60)
        assert template.returncode == 0
        assert [path.name for path in folder.iterdir()] == ["a.lock"]  # as a starter leaves it
        with pytest.raises(OSError, match="No such file"):
            connect(folder / "a.sock")
