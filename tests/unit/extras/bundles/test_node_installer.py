"""What a node does with a bundle; here in this process, with an installer that only makes the folders."""

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
    SET_UP,
    BundleSource,
    arrive,
    cache_of,
    error_in,
    receive,
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
    """Of a bundle whose installer only makes folders."""
    (bundle / "install.py").write_text(INSTALLER)
    return read_manifest(bundle)


@pytest.fixture
def asked(bundle: Path, manifest: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The pieces that came from the machine of the command, without Ray between; each has 400 bytes."""
    monkeypatch.setattr(node_installer, "PIECE", 400)
    source, heard = BundleSource({identity(manifest): str(bundle)}), []

    def piece(_: object, of: str, name: str, begin: int) -> bytes:
        heard.append((name, begin))
        return source.piece(of, name, begin)

    monkeypatch.setattr(node_installer, "_piece", piece)
    return heard


@pytest.fixture
def set_up(cache: Path, manifest: dict[str, Any]) -> Path:
    """Where the harness of the bundle is set up."""
    return cache / SET_UP.format(identity(manifest))


def lines(told: Iterator[tuple[bool, str]]) -> list[str]:
    """The lines of a node that could be set up."""
    items = list(told)
    assert not any(failed for failed, _ in items), items
    return [text for _, text in items]


def test_a_bundle_at_the_same_path_is_used_there(
    bundle: Path, manifest: dict[str, Any], asked: list[tuple[str, int]], set_up: Path
) -> None:
    assert lines(arrive([(str(bundle), manifest)], None)) == ["checking 3 parts"]
    assert asked == []
    (own,) = (set_up / ".venv").glob("lib/python*/site-packages")
    (packages,) = [folder for folder in sys.path if folder.endswith("-packages")]
    assert repr(packages) in (own / "ray.pth").read_text()


def test_a_node_without_the_folder_receives_it_once(
    manifest: dict[str, Any], asked: list[tuple[str, int]], set_up: Path
) -> None:
    told = lines(arrive([("/not/here", manifest)], None))
    assert told == [*(f"received {number} of 3 parts" for number in (1, 2, 3)), "checking 3 parts"]
    assert [begin for name, begin in asked if name == "part-0001"] == [0, 400, 800, 1000]
    assert not set_up.with_name("received").exists()
    asked.clear()
    assert lines(arrive([("/not/here", manifest)], None)) == []
    assert asked == []
    assert (set_up.parent / "times").read_text() == "once\n"


def test_runs_at_the_same_time_set_it_up_once(
    bundle: Path, manifest: dict[str, Any], set_up: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_installer, "_WAIT_S", 0.05)
    first = arrive([(str(bundle), manifest)], None)
    assert next(first) == (False, "checking 3 parts")  # it holds the lock now
    second = arrive([(str(bundle), manifest)], None)
    assert next(second) == (False, "waiting for another process that sets the same bundle up")
    others: list[str] = []
    waiting = threading.Thread(target=lambda: others.extend(lines(second)))
    waiting.start()
    assert lines(first) == []
    waiting.join(30)
    assert others == []
    assert (set_up.parent / "times").read_text() == "once\n"


def test_it_goes_on_with_the_parts_that_are_missing_or_cut(
    bundle: Path, manifest: dict[str, Any], asked: list[tuple[str, int]], tmp_path: Path
) -> None:
    into = tmp_path / "received"
    into.mkdir()
    shutil.copy(bundle / "part-0001", into)
    (into / "part-0002").write_bytes(b"cut")
    (into / ".part-0003.half").write_bytes(b"half of it")
    piece = partial(node_installer._piece, None, identity(manifest))
    assert list(receive(manifest, piece, into)) == ["received 2 of 3 parts", "received 3 of 3 parts"]
    assert {name for name, _ in asked} == {"part-0002", "part-0003", "install.py", "manifest.json"}
    assert {path.name: path.read_bytes() for path in into.iterdir()} == {
        path.name: path.read_bytes() for path in bundle.iterdir()
    }


def test_a_part_that_comes_damaged_is_named(
    bundle: Path, manifest: dict[str, Any], asked: list[tuple[str, int]], set_up: Path
) -> None:
    (bundle / "part-0002").write_bytes(bytes(1000))
    *_, last = arrive([("/not/here", manifest)], None)
    assert last[0]
    assert last[1].startswith("part-0002 is damaged (its sha256 differs): it did not arrive as it was packed")
    assert not set_up.exists()


def test_a_node_without_room_says_so_before_anything_comes(
    manifest: dict[str, Any], asked: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_installer.shutil, "disk_usage", lambda _: SimpleNamespace(free=4999))
    ((failed, text),) = arrive([("/not/here", manifest)], None)
    assert failed
    assert "0.0 GB free, the bundle and its files take 0.0 GB" in text
    assert asked == []


def test_a_cache_where_others_may_write_is_not_used(
    bundle: Path, manifest: dict[str, Any], cache: Path, set_up: Path
) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    ((failed, text),) = arrive([(str(bundle), manifest)], None)
    assert failed
    assert f"other users may write to {cache}" in text
    assert not set_up.exists()


def test_an_error_of_the_installer_is_told(bundle: Path, manifest: dict[str, Any]) -> None:
    (bundle / "install.py").write_text(FAILS)
    *_, last = arrive([(str(bundle), manifest)], None)
    assert last == (True, "no space left try: free some")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (["making", "error: it", "try: that", "error: `uv` failed"], "it try: that error: `uv` failed"),
        (["Traceback", "KeyError: 'a'"], "KeyError: 'a'"),
        ([], "its installer was killed"),
    ],
)
def test_the_error_is_found_in_what_was_said(said: list[str], told: str) -> None:
    assert error_in(said) == told


@pytest.mark.parametrize(
    "environ",
    [
        {"VLLM_HARNESS_CACHE": "/a b/c", "XDG_CACHE_HOME": "/d"},
        {"VLLM_HARNESS_CACHE": "", "XDG_CACHE_HOME": "/d"},
        {"XDG_CACHE_HOME": ""},
        {},
    ],
)
def test_the_node_its_shell_and_the_harness_have_one_cache(
    environ: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("VLLM_HARNESS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": str(tmp_path), **environ}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("vllm_harness._files.paths.shared_folder", lambda path, _: path)
    shell = subprocess.run(["bash", "-c", f'echo -n "{CACHE}"'], capture_output=True, text=True, check=True)
    assert Path(shell.stdout) == cache_of(os.environ) == cache_dir()
