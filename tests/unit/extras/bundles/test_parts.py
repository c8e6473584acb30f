"""Packing and unpacking: files are restored exactly, or none is written and the damage is named."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.extras.bundles.conftest import ABOUT, HERE
from vllm_harness.extras.bundles import install
from vllm_harness.extras.bundles.install import (
    InstallerError,
    check_machine,
    check_parts,
    extract,
    read_manifest,
    unpack,
    unpacked,
)
from vllm_harness.extras.bundles.parts import pack


def files(folder: Path) -> dict[str, bytes]:
    """Returns every file below a folder."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_parts_are_split_at_the_size(bundle: Path, content: Path) -> None:
    sizes = [part["size"] for part in read_manifest(bundle)["parts"]]
    assert sizes == [1000, 1000, 500]
    assert sorted(path.name for path in bundle.iterdir()) == [
        *("install.py", "manifest.json", "part-0001", "part-0002", "part-0003")
    ]


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.binary(max_size=60), max_size=6),
    part_size=st.integers(1, 50),
    compressed=st.booleans(),
)
def test_files_are_restored_exactly(sizes: list[bytes], part_size: int, compressed: bool) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        content, bundle, into = (Path(temporary) / name for name in ("content", "bundle", "into"))
        for folder in (content / "deep", bundle, into):
            folder.mkdir(parents=True)
        for number, data in enumerate(sizes):
            (content / "deep" / f"{number}").write_bytes(data)
        manifest = pack(content, bundle, part_size, ABOUT, compressed=compressed)
        assert all(0 < (bundle / part["name"]).stat().st_size <= part_size for part in manifest["parts"])
        check_parts(bundle, manifest)
        unpack(bundle, read_manifest(bundle), into)
        assert files(into) == files(content)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda b: (b / "part-0002").unlink(), "part-0002 is missing"),
    "truncated": (lambda b: (b / "part-0003").write_bytes(b""), "part-0003 has 0 bytes, not 500"),
    "flipped": (lambda b: _flip(b / "part-0001"), "part-0001 is damaged"),
    "exchanged": (lambda b: shutil.copy(b / "part-0001", b / "part-0002"), "part-0002 is damaged"),
    "two": (
        lambda b: ((b / "part-0001").unlink(), _flip(b / "part-0003")),
        "part-0001 is missing; part-0003 is damaged",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named_and_nothing_is_unpacked(bundle: Path, tmp_path: Path, kind: str) -> None:
    damage, words = DAMAGE[kind]
    damage(bundle)
    with (
        pytest.raises(InstallerError, match=words),
        unpacked(bundle, read_manifest(bundle), tmp_path / "into"),
    ):
        pytest.fail("it was unpacked")
    assert not (tmp_path / "into").exists()


def _edit(bundle: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = read_manifest(bundle)
    change(manifest)
    (bundle / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m["files"][0].update(path="../evil"), r"names \.\./evil, which is outside"),
        (lambda m: m["files"][0].update(path="/etc/evil"), "names /etc/evil, which is outside"),
        (lambda m: m["files"][0].update(sha256="0"), "tokenizer.json is not the file that was packed"),
        (lambda m: m["files"][0].update(size=801), "tokenizer.json is not the file that was packed"),
        (lambda m: m["files"][0].update(size=10**18), "unpacks to 1000000000.0 GB"),
    ],
)
def test_a_wrong_manifest_is_refused(bundle: Path, tmp_path: Path, change: Any, words: str) -> None:
    _edit(bundle, change)
    into = tmp_path / "into"
    with pytest.raises(InstallerError, match=words), unpacked(bundle, read_manifest(bundle), into):
        pytest.fail("it was unpacked")
    assert files(tmp_path / "into") == {}


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"format": 9}'])
def test_a_folder_without_a_valid_manifest_is_refused(bundle: Path, text: str | None) -> None:
    if text is None:
        (bundle / "manifest.json").unlink()
    else:
        (bundle / "manifest.json").write_text(text)
    with pytest.raises(InstallerError, match=r"is not a bundle|format 9, but this installer reads format 2"):
        read_manifest(bundle)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.pop("python"), "python"),
        (lambda m: m.update(parts="part-0001"), "parts"),
        (lambda m: m.update(files=[7]), "files: path, files: size, files: sha256"),
        (lambda m: m["files"][0].pop("sha256"), "files: sha256"),
        (lambda m: m["parts"][1].update(size="big"), "parts: size"),
        (lambda m: m.update(without_torch="no", vllm=None), "vllm, without_torch"),
    ],
)
def test_a_manifest_without_a_key_is_damaged(bundle: Path, change: Any, words: str) -> None:
    manifest = read_manifest(bundle)
    change(manifest)
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(
        InstallerError, match=rf"manifest.json is damaged \({words}\): copy the bundle again"
    ) as caught:
        read_manifest(bundle)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("checkout", [None, b"", b"no archive", gzip.compress(bytes(20))[:-9]])
def test_a_damaged_checkout_is_named(content: Path, tmp_path: Path, checkout: bytes | None) -> None:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    if checkout is not None:
        (content / "checkout").mkdir()
        (content / "checkout/harness.tar.gz").write_bytes(checkout)
    pack(content, bundle, 1000, ABOUT)
    ended = subprocess.run(
        [sys.executable, "-I", "-S", bundle / "install.py", tmp_path / "into"], capture_output=True, text=True
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"error: {bundle} is damaged (")
    assert len(ended.stderr.splitlines()) == 1
    assert not (tmp_path / "into").exists()


def _archive(path: Path, *members: tuple[str, bytes, bytes]) -> tarfile.TarFile:
    with tarfile.open(path, "w") as tar:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, len(content), "/etc/passwd"
            tar.addfile(member, io.BytesIO(content))
    return tarfile.open(path)


@pytest.mark.parametrize("filtered", [True, False])
def test_an_archive_stays_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filtered: bool
) -> None:
    if not filtered:
        monkeypatch.delattr(tarfile, "data_filter")  # as in Python 3.11.3
    elif not hasattr(tarfile, "data_filter"):
        pytest.skip("needs Python 3.11.4 or newer, which has filters for archives")
    folder = tmp_path / "folder"
    with _archive(tmp_path / "good.tar", ("a", tarfile.DIRTYPE, b""), ("a/b", tarfile.REGTYPE, b"c")) as good:
        extract(good, folder)
    assert files(folder) == {"a/b": b"c"}
    for number, (name, kind) in enumerate(
        [("../out", tarfile.REGTYPE), ("link", tarfile.SYMTYPE), ("device", tarfile.CHRTYPE)]
    ):
        with (
            _archive(tmp_path / f"{number}.tar", (name, kind, b"")) as bad,
            pytest.raises((InstallerError, tarfile.TarError)),
        ):
            extract(bad, folder)
    assert files(tmp_path).keys() == {"folder/a/b", "good.tar", "0.tar", "1.tar", "2.tar"}


@pytest.mark.parametrize(("key", "value"), [("python", "3.9"), ("machine", "riscv64"), ("system", "darwin")])
def test_another_machine_is_refused(key: str, value: str) -> None:
    check_machine(HERE)
    with pytest.raises(InstallerError, match=f"the bundle is for .*{value}"):
        check_machine(HERE | {key: value})


def test_the_installer_needs_only_python(bundle: Path, tmp_path: Path) -> None:
    (bundle / "part-0002").unlink()
    bare = [sys.executable, "-I", "-S", bundle / "install.py", tmp_path / "into"]
    ended = subprocess.run(bare, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "part-0002 is missing. Copy them again; nothing was installed" in ended.stderr
    assert not (tmp_path / "into").exists()


def test_the_installer_refuses_an_existing_folder(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(InstallerError, match="mine exists already"):
        install._set_up(bundle, tmp_path / "mine", [])
    assert (tmp_path / "mine").exists()


def test_a_killed_installation_resumes(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest, folder = read_manifest(bundle), tmp_path / "new"
    folder.mkdir()
    (folder / install.UNFINISHED).write_text(install.identity(manifest))
    (folder / "kept").touch()
    abandoned = tmp_path / f".bundle-{install.identity(manifest)}"
    abandoned.mkdir()
    steps: list[str] = []
    monkeypatch.setattr(install, "_environment", lambda *_: steps.append("environment"))
    monkeypatch.setattr(install, "_run", lambda harness, *command, environ: steps.append(command[1]))
    install._set_up(bundle, folder, [])
    assert steps == ["environment", "bundle"]
    assert [path.name for path in folder.iterdir()] == ["kept"]
    assert not abandoned.exists()
    with pytest.raises(InstallerError, match="exists already"):
        install._set_up(bundle, folder, [])


def test_a_second_installation_of_the_same_bundle_is_refused(bundle: Path, tmp_path: Path) -> None:
    manifest = read_manifest(bundle)
    with (
        unpacked(bundle, manifest, tmp_path / "beside"),
        pytest.raises(InstallerError, match="another process"),
        unpacked(bundle, manifest, tmp_path / "beside"),
    ):
        pass
    assert not list((tmp_path / "beside").iterdir())


def test_a_failed_installation_leaves_nothing(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(files: Path, folder: Path, bundle: str) -> None:
        folder.mkdir()
        raise InstallerError("no")

    monkeypatch.setattr(install, "_checkout", fail)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InstallerError, match="no"):
        install._set_up(bundle, tmp_path / "new", [])
    assert sorted(tmp_path.iterdir()) == before


class _Ending(type(Path())):  # type: ignore[misc]
    """The path of a lock file whose holder ends, and removes it, while the next process opens it."""

    def open(self, *arguments: Any, **options: Any) -> Any:
        """Opens the file, which is then removed."""
        file = super().open(*arguments, **options)
        self.unlink()
        return file


def test_a_removed_lock_file_locks_nothing(tmp_path: Path) -> None:
    """Otherwise two processes could hold the lock, one of them on a new file."""
    lock = tmp_path / "lock"
    with pytest.raises(InstallerError, match="another process"), install._exclusive(_Ending(lock)):
        pass
    with install._exclusive(lock):
        assert lock.exists()
    assert not lock.exists()
