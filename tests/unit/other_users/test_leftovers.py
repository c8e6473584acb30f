"""A user's logs, keys and caches are safe from other users; caches can be used without write access."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from tests.unit.other_users.nobody import Nobody, needs_root, reachable_folder, wait_for_path
from vllm_harness._environments import assets
from vllm_harness._environments.sources import PackageSource, PinnedFile, sha256_of
from vllm_harness._environments.spec import stub_metadata
from vllm_harness._server import reusable
from vllm_harness._server.leases.ports import lease_port, listeners
from vllm_harness._server.records import ServerRecord, new_log
from vllm_harness._terminal.status import quiet


def test_a_log_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        log = new_log(tmp_path, "server")
    finally:
        os.umask(before)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@needs_root
def test_another_user_on_the_port_of_a_reusable_server_gets_no_key() -> None:
    def listen() -> int:
        with socket.create_server(("127.0.0.1", lease.port)) as server:
            (folder / "listens").touch()
            server.settimeout(2)
            try:
                return len(server.accept()[0].recv(1000)) % 255 + 1
            except TimeoutError:
                return 0

    lease = lease_port()
    with reachable_folder() as folder:
        folder.chmod(0o777)
        other = Nobody(listen)
        wait_for_path(folder / "listens")
        assert listeners(lease.port) == {other.pid}
        with subprocess.Popen(["sleep", "60"]) as supervisor:
            record = ServerRecord(
                server_id="id",
                supervisor=supervisor.pid,
                tmp=str(folder),
                name="m",
                lane="live",
                environment="env",
                log="log",
                port=lease.port,
                kept=True,
            )
            assert not reusable._serves(record, "m", "secret")
            supervisor.kill()
        assert other.exit_code() == 0
    lease.release()


@needs_root
def test_a_cache_is_read_without_write_access(monkeypatch: pytest.MonkeyPatch) -> None:
    with reachable_folder() as cache:
        folder = cache / "assets" / "one"
        folder.mkdir(parents=True)
        (folder / "file").write_text("content")
        pin = PinnedFile(path="file", sha256=sha256_of(folder / "file"))
        source = PackageSource(kind="npm", package="a@1", sha256="0" * 64, files=[pin])
        asset = assets.Asset(description="", sources=[source])
        assets._write_manifest(folder, asset, source)
        (folder / ".vllm-harness.json").chmod(0o644)
        monkeypatch.setenv("VLLM_HARNESS_CACHE", str(cache))
        stub_metadata("9.9.9")

        def read() -> int:
            assert assets._fetch(folder, asset, quiet, None) == folder
            made = stub_metadata("9.9.9") / "vllm-9.9.9+cpu.dist-info" / "METADATA"
            return 0 if "9.9.9+cpu" in made.read_text() else 2

        assert Nobody(read).exit_code() == 0
