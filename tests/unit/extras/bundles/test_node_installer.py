"""How a node installs a bundle, tested in this process with an installer that only makes folders."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_harness._files.paths import cache_dir
from vllm_harness.extras.bundles import node_installer
from vllm_harness.extras.bundles.install import identity, read_manifest
from vllm_harness.extras.bundles.node_installer import (
    CACHE,
    HARNESS_FOLDER,
    BundleSource,
    cache_of,
    error_in,
    receive,
    set_up_node,
)

INSTALLER = """
import pathlib, sys, sysconfig
folder = pathlib.Path(sys.argv[1])
print("checking 3 parts\\n  in short")
(folder / ".venv/bin").mkdir(parents=True)
(folder / f".venv/lib/python{sysconfig.get_python_version()}/site-packages").mkdir(parents=True)
(folder / ".venv/bin/vllm-harness").touch()
with (folder.parent / "times").open("a") as file:
    file.write("once\\n")
"""
FAILS = "import sys; sys.exit('uv: no\\nerror: no space left\\n  try: free some')"


@pytest.fixture
def manifest(bundle: Path) -> dict[str, Any]:
    """The manifest of a bundle whose installer only makes folders."""
    (bundle / "install.py").write_text(INSTALLER)
    return read_manifest(bundle)


@pytest.fixture
def pieces(bundle: Path, manifest: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The pieces of 400 bytes that the node has requested from the command's machine, without Ray."""
    monkeypatch.setattr(node_installer, "PIECE", 400)
    source, requested = BundleSource({identity(manifest): str(bundle)}), []

    def piece(_: object, of: str, name: str, offset: int) -> bytes:
        requested.append((name, offset))
        return source.piece(of, name, offset)

    monkeypatch.setattr(node_installer, "_piece", piece)
    return requested


@pytest.fixture
def set_up(cache: Path, manifest: dict[str, Any]) -> Path:
    """The folder in which the bundle's harness is set up."""
    return cache / HARNESS_FOLDER.format(identity(manifest))


def lines(steps: Iterator[tuple[bool, str]]) -> list[str]:
    """Returns the progress lines of a node, whose setup must succeed."""
    every = list(steps)
    assert not any(failed for failed, _ in every), every
    return [text for _, text in every]


def test_a_bundle_at_the_same_path_is_used_there(
    bundle: Path, manifest: dict[str, Any], pieces: list[tuple[str, int]], set_up: Path
) -> None:
    assert lines(set_up_node([(str(bundle), manifest)], None)) == ["checking 3 parts"]
    assert pieces == []
    (own,) = (set_up / ".venv").glob("lib/python*/site-packages")
    (packages,) = [folder for folder in sys.path if folder.endswith("-packages")]
    assert repr(packages) in (own / "ray.pth").read_text()


def test_a_node_without_the_folder_receives_it_once(
    manifest: dict[str, Any], pieces: list[tuple[str, int]], set_up: Path
) -> None:
    steps = lines(set_up_node([("/not/here", manifest)], None))
    assert steps == [*(f"received {number} of 3 parts" for number in (1, 2, 3)), "checking 3 parts"]
    assert [offset for name, offset in pieces if name == "part-0001"] == [0, 400, 800, 1000]
    assert not set_up.with_name("received").exists()
    pieces.clear()
    assert lines(set_up_node([("/not/here", manifest)], None)) == []
    assert pieces == []
    assert (set_up.parent / "times").read_text() == "once\n"


def test_concurrent_runs_set_it_up_once(
    bundle: Path, manifest: dict[str, Any], set_up: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_installer, "_WAIT_S", 0.05)
    first = set_up_node([(str(bundle), manifest)], None)
    assert next(first) == (False, "checking 3 parts")  # the first setup holds the lock now
    second = set_up_node([(str(bundle), manifest)], None)
    assert next(second) == (False, "waiting for another process that installs the same bundle")
    others: list[str] = []
    waiting = threading.Thread(target=lambda: others.extend(lines(second)))
    waiting.start()
    assert lines(first) == []
    waiting.join(120)
    assert others == []
    assert (set_up.parent / "times").read_text() == "once\n"


def test_it_resumes_with_missing_and_truncated_parts(
    bundle: Path, manifest: dict[str, Any], pieces: list[tuple[str, int]], tmp_path: Path
) -> None:
    into = tmp_path / "received"
    into.mkdir()
    shutil.copy(bundle / "part-0001", into)
    (into / "part-0002").write_bytes(b"truncated")
    (into / ".part-0003.half").write_bytes(b"half of it")
    piece = partial(node_installer._piece, None, identity(manifest))
    assert list(receive(manifest, piece, into)) == ["received 2 of 3 parts", "received 3 of 3 parts"]
    assert {name for name, _ in pieces} == {"part-0002", "part-0003", "install.py", "manifest.json"}
    assert {path.name: path.read_bytes() for path in into.iterdir()} == {
        path.name: path.read_bytes() for path in bundle.iterdir()
    }


def test_a_part_that_arrives_damaged_is_named(
    bundle: Path, manifest: dict[str, Any], pieces: list[tuple[str, int]], set_up: Path
) -> None:
    (bundle / "part-0002").write_bytes(bytes(1000))
    *_, last = set_up_node([("/not/here", manifest)], None)
    assert last[0]
    assert last[1].startswith("part-0002 is damaged (its sha256 differs): it was damaged in transit")
    assert not set_up.exists()


def test_a_full_disk_is_reported_before_anything_is_sent(
    manifest: dict[str, Any], pieces: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_installer.shutil, "disk_usage", lambda _: SimpleNamespace(free=4999))
    ((failed, text),) = set_up_node([("/not/here", manifest)], None)
    assert failed
    assert "0.0 GB free, but the bundle and its files take 0.0 GB" in text
    assert pieces == []


def test_a_cache_that_others_may_write_to_is_refused(
    bundle: Path, manifest: dict[str, Any], cache: Path, set_up: Path
) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    ((failed, text),) = set_up_node([(str(bundle), manifest)], None)
    assert failed
    assert f"other users may write to {cache}" in text
    assert not set_up.exists()


def test_an_error_of_the_installer_is_reported(bundle: Path, manifest: dict[str, Any]) -> None:
    (bundle / "install.py").write_text(FAILS)
    *_, last = set_up_node([(str(bundle), manifest)], None)
    assert last == (True, "no space left try: free some")


@pytest.mark.parametrize(
    ("output", "error"),
    [
        (["making", "error: it", "try: that", "error: `uv` failed"], "it try: that error: `uv` failed"),
        (["Traceback", "KeyError: 'a'"], "KeyError: 'a'"),
        ([], "its installer was killed"),
    ],
)
def test_the_error_is_found_in_the_output(output: list[str], error: str) -> None:
    assert error_in(output) == error


@pytest.mark.parametrize(
    "environ",
    [
        {"VLLM_HARNESS_CACHE": "/a b/c", "XDG_CACHE_HOME": "/d"},
        {"VLLM_HARNESS_CACHE": "", "XDG_CACHE_HOME": "/d"},
        {"XDG_CACHE_HOME": ""},
        {},
    ],
)
def test_the_installer_a_shell_and_the_harness_use_the_same_cache(
    environ: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("VLLM_HARNESS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": str(tmp_path), **environ}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("vllm_harness._files.paths.shared_folder", lambda path, _: path)
    shell = subprocess.run(["bash", "-c", f'echo -n "{CACHE}"'], capture_output=True, text=True, check=True)
    assert Path(shell.stdout) == cache_of(os.environ) == cache_dir()
