"""Sets up a machine without a network from the bundle that contains this file.

    python3 install.py [FOLDER] [--over PYTHON]

Installs the harness's checkout and its environment `.venv` in FOLDER (default: vllm-harness), and the server
environment and the assets in the cache. A bundle without torch needs --over: the path of a Python on this
machine that has torch. Run this file with the Python version for which the bundle was made, 3.11 or newer;
nothing else is needed. If the installation is killed, run the same command again to resume it.
"""

# This file runs without the harness, also on cluster nodes, so it imports only the standard library.
from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import lzma
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

FORMAT = 2
MANIFEST = "manifest.json"
UNFINISHED = ".unfinished-bundle"
BLOCK = 2**20


_KEYS = {
    **dict.fromkeys(("python", "machine", "system", "vllm", "lock", "device"), str),
    **dict.fromkeys(("compressed", "without_torch"), bool),
    **dict.fromkeys(("assets", "hub", "files", "parts"), list),
}
"""The types of the values in a manifest."""
_DAMAGE = (ValueError, LookupError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile)
"""What the archives in a damaged bundle raise."""


class InstallerError(Exception):
    """A bundle is damaged or does not fit this machine; the message ends with a remedy.

    Attributes:
        exit_code: 3 if this machine is the cause, such as a full disk, else 2.
    """

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def read_manifest(bundle: Path) -> dict[str, Any]:
    """Reads a bundle's manifest. Raises InstallerError if it is missing, damaged or in an unknown format."""
    try:
        manifest: dict[str, Any] = json.loads((bundle / MANIFEST).read_text())
        known = manifest["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InstallerError(f"{bundle} is not a bundle: its {MANIFEST} cannot be read ({error})") from None
    if not known:
        raise InstallerError(
            f"{bundle} has format {manifest['format']}, but this installer reads format {FORMAT}: "
            "use the bundle's own install.py"
        )
    wrong = _wrong(manifest, _KEYS)
    for kind, name in (("parts", "name"), ("files", "path")):
        for each in () if wrong else manifest[kind]:
            wrong += [f"{kind}: {key}" for key in _wrong(each, {name: str, "size": int, "sha256": str})]
    if wrong:
        raise InstallerError(
            f"{bundle / MANIFEST} is damaged ({', '.join(wrong[:3])}): copy the bundle again"
        )
    return manifest


def _wrong(document: Any, keys: dict[str, type]) -> list[str]:
    """The keys without a value of their type."""
    values = document if isinstance(document, dict) else {}
    return [key for key, kind in keys.items() if type(values.get(key)) is not kind]


def check_machine(manifest: dict[str, Any]) -> None:
    """Raises InstallerError unless the bundle's wheels are for this Python and machine."""
    here = (".".join(map(str, sys.version_info[:2])), platform.machine(), sys.platform)
    there = (manifest["python"], manifest["machine"], manifest["system"])
    if here != there:
        remedy = f"run it with python{there[0]}" if here[1:] == there[1:] else "make one for this platform"
        raise InstallerError(
            f"the bundle is for Python {there[0]} on {there[2]} {there[1]}, "
            f"but this is Python {here[0]} on {here[2]} {here[1]}: {remedy}"
        )


def check_parts(bundle: Path, manifest: dict[str, Any]) -> None:
    """Checks the parts of a bundle. Raises InstallerError, which lists every missing or damaged part."""
    faults = [fault for part in manifest["parts"] if (fault := fault_of(bundle / part["name"], part))]
    if faults:
        raise InstallerError(f"{bundle}: {'; '.join(faults)}. Copy them again; nothing was installed")


def unpack(bundle: Path, manifest: dict[str, Any], into: Path) -> None:
    """Unpacks and checks a bundle's files. Raises InstallerError if one is damaged or the disk is full."""
    size = sum(file["size"] for file in manifest["files"])
    if (free := shutil.disk_usage(into).free) < size:
        raise InstallerError(
            f"{into} has {free / 1e9:.1f} GB free, but the bundle unpacks to {size / 1e9:.1f} GB",
            exit_code=3,
        )
    parts = [bundle / part["name"] for part in manifest["parts"]]
    with closing(_Joined(parts, lzma.LZMADecompressor() if manifest["compressed"] else None)) as joined:
        for file in manifest["files"]:
            target = into / _inside(file["path"])
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as out:
                sha256 = joined.copy(out, file["size"])
            if sha256 != file["sha256"]:
                raise InstallerError(
                    f"{file['path']} is not the file that was packed (sha256 {sha256}); copy the bundle again"
                )


@contextmanager
def unpacked(bundle: Path, manifest: dict[str, Any], beside: Path) -> Iterator[Path]:
    """Checks the parts of a bundle, and unpacks the bundle into a temporary folder in `beside`.

    Raises InstallerError if the bundle is damaged, the disk is full, or another process unpacks the bundle.
    """
    check_parts(bundle, manifest)
    beside.mkdir(parents=True, exist_ok=True)
    folder = beside / f".bundle-{identity(manifest)}"
    with _exclusive(beside / f"{folder.name}.lock"):
        shutil.rmtree(folder, ignore_errors=True)  # left behind by a killed run
        folder.mkdir()
        try:
            unpack(bundle, manifest, folder)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def identity(manifest: dict[str, Any]) -> str:
    """Returns a hash that identifies a bundle."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()[:12]


@contextmanager
def _exclusive(lock: Path) -> Iterator[None]:
    """Locks a file. Raises InstallerError if another process holds the lock (installs the same bundle)."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(file.fileno()).st_nlink:  # its last holder has removed it
                raise BlockingIOError
        except BlockingIOError:
            raise InstallerError(
                f"another process is installing this bundle in {lock.parent}: wait until it ends",
                exit_code=3,
            ) from None
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def offline(wheels: Path) -> dict[str, str]:
    """Returns the environment variables that make uv use only the wheels in a folder."""
    return {
        "UV_OFFLINE": "1",
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": str(wheels),
        "UV_PYTHON_DOWNLOADS": "never",
    }


def main() -> int:
    """Installs the harness from the bundle, and uses that harness to install everything else."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("vllm-harness"))
    parser.add_argument("--over", metavar="PYTHON")
    given = parser.parse_args()
    folder: Path = given.folder.resolve()
    bundle = Path(__file__).resolve().parent
    try:
        _set_up(bundle, folder, ["--over", given.over] if given.over else [])
    except (InstallerError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, InstallerError) else 3
    except _DAMAGE as error:
        print(f"error: {bundle} is damaged ({error}): copy it again", file=sys.stderr)
        return 2
    print(f"\n{folder} is set up:\n  cd {folder} && .venv/bin/vllm-harness doctor")
    return 0


def _set_up(bundle: Path, folder: Path, options: list[str]) -> None:
    manifest = read_manifest(bundle)
    check_machine(manifest)
    unfinished = folder / UNFINISHED
    resumes = unfinished.is_file() and unfinished.read_text() == identity(manifest)
    if folder.exists() and not resumes:
        raise InstallerError(f"{folder} exists already: remove it, or name another folder")
    print(f"checking {len(manifest['parts'])} parts", flush=True)
    with unpacked(bundle, manifest, folder.parent) as files:
        try:
            if resumes:
                print(f"resuming the installation in {folder}", flush=True)
            else:
                _checkout(files, folder, identity(manifest))
            _environment(files / "wheels", folder)
            harness = folder / ".venv/bin/vllm-harness"
            _run(harness, "env", "bundle", "install", bundle, "--unpacked", files, *options, environ={})
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    unfinished.unlink()


def _checkout(files: Path, folder: Path, bundle: str) -> None:
    (archive,) = (files / "checkout").glob("*.tar.gz")
    with tarfile.open(archive, "r:gz") as tar:
        extract(tar, files / "source")
    (source,) = (files / "source").iterdir()
    if (lock := files / "locks/harness.lock").exists():  # the bundle is lean
        shutil.copyfile(lock, source / "env/harness.lock")
    (source / UNFINISHED).write_text(bundle)
    source.rename(folder)


def extract(tar: tarfile.TarFile, folder: Path, members: Iterable[tarfile.TarInfo] | None = None) -> None:
    """Unpacks an archive; nothing in it can reach a place outside the folder.

    Raises InstallerError for a link or a device, if Python is older than 3.11.4 and so has no filters.
    """
    if hasattr(tarfile, "data_filter"):
        tar.extractall(folder, members, filter="data")
        return
    for member in tar if members is None else members:
        if not (member.isfile() or member.isdir()):
            raise InstallerError(f"{member.name} is neither a file nor a folder: use Python 3.11.4 or newer")
        _inside(member.name)
        member.mode = 0o755 if member.mode & 0o100 or member.isdir() else 0o644
        tar.extract(member, folder, set_attrs=member.isfile())


def _environment(wheels: Path, folder: Path) -> None:
    """Makes the harness's environment with `scripts/_bootstrap` and the uv from the bundle's wheels."""
    (wheel,) = wheels.glob("uv-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".data/scripts/uv"))
        uv = Path(archive.extract(name, wheels.parent / "uv"))
        uv.chmod(0o755)
        environ = offline(wheels)
        venv = folder / ".venv"
        print("making the harness's environment", flush=True)
        options = ("--quiet", "--allow-existing", "--no-project", "--python", sys.executable)
        _run(uv, "venv", *options, venv, environ=environ)
        _run(uv, "pip", "install", "--quiet", "--python", venv, "--no-deps", wheel, environ=environ)
    _run("bash", folder / "scripts/_bootstrap", environ=environ)


def _run(*command: str | Path, environ: dict[str, str]) -> None:
    setpriv = shutil.which("setpriv")
    prefix = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
    try:
        subprocess.run([*prefix, *map(str, command)], env={**os.environ, **environ}, check=True)
    except subprocess.CalledProcessError as error:
        short = " ".join(map(str, command[:3]))
        raise InstallerError(
            f"`{short}` failed (exit code {error.returncode}); its output was removed", exit_code=3
        ) from None


class _Joined:
    """Reads files one after another, as a single stream."""

    def __init__(self, paths: list[Path], decompressor: lzma.LZMADecompressor | None = None) -> None:
        self._paths = iter(paths)
        self._decompressor = decompressor
        self._file: BinaryIO | None = None

    def copy(self, out: BinaryIO, size: int) -> str:
        """Copies `size` bytes, or fewer if the stream ends earlier; returns the sha256 of these bytes."""
        digest = hashlib.sha256()
        read = self._decompressed if self._decompressor else self._read
        while size and (block := read(min(size, BLOCK))):
            out.write(block)
            digest.update(block)
            size -= len(block)
        return digest.hexdigest()

    def _decompressed(self, size: int) -> bytes:
        """Reads at most `size` bytes; empty at the end. Raises InstallerError if the xz stream is invalid."""
        decompressor = self._decompressor
        assert decompressor
        try:
            while not decompressor.eof:
                needs_input = decompressor.needs_input
                compressed = self._read(BLOCK) if needs_input else b""
                if block := decompressor.decompress(compressed, size):
                    return block
                if needs_input and not compressed:
                    break
        except lzma.LZMAError as error:
            raise InstallerError(
                f"the parts cannot be decompressed ({error}); copy the bundle again"
            ) from None
        return b""

    def _read(self, size: int) -> bytes:
        while True:
            if self._file and (block := self._file.read(size)):
                return block
            self.close()
            if not (path := next(self._paths, None)):
                return b""
            self._file = path.open("rb")

    def close(self) -> None:
        """Closes the current file."""
        if self._file:
            self._file.close()
            self._file = None


def fault_of(path: Path, part: dict[str, Any]) -> str | None:
    """Describes what is wrong with the file of a part; None if nothing is wrong."""
    if not path.is_file():
        return f"{path.name} is missing"
    if path.stat().st_size != part["size"]:
        return f"{path.name} has {path.stat().st_size} bytes, not {part['size']}"
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return None if sha256 == part["sha256"] else f"{path.name} is damaged (its sha256 differs)"


def _inside(path: str) -> PurePosixPath:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts:
        raise InstallerError(f"the bundle names {path}, which is outside its folder: do not use it")
    return pure


if __name__ == "__main__":
    sys.exit(main())
