"""A working tree of vLLM: its version and commit, and its Python code as a linked package.

The tree itself is not changed: the package folder belongs to the environment, its entries are links to the
folders and files of the tree, and bytecode is written to a folder of the environment.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from vllm_harness._environments.git import git_output
from vllm_harness._errors import UsageError

_LEFT_OUT = {"__pycache__", "_version.py"}
_VERSION_FILE = "__version__ = version = {version!r}\n__version_tuple__ = version_tuple = {parts!r}\n"


def has_vllm(folder: Path) -> bool:
    """Whether a folder has vLLM's Python code, as a checkout or an unpacked source distribution has."""
    return (folder / "vllm" / "__init__.py").is_file()


@dataclass(frozen=True)
class Tree:
    """A working tree.

    Attributes:
        path: the folder of the tree.
        version: the version, from `vllm/_version.py` or else from git's tags, without a local part; None if
            there is neither.
        commit: the commit, followed by `+changes` if files in the package have changed; None if unknown.
    """

    path: Path
    version: str | None
    commit: str | None

    @classmethod
    def at(cls, path: Path) -> Tree:
        """Reads the tree in a folder. Raises UsageError if it has no vLLM."""
        if not has_vllm(path):
            raise UsageError(
                f"{path} is not a working tree of vLLM: it has no vllm/__init__.py",
                hint="name the folder of a checkout, or of an unpacked source distribution",
            )
        written = _written(path)
        if git_output(path, "rev-parse", "--show-toplevel") != str(path):
            return cls(path, written.get("version"), written.get("commit_id", "").removeprefix("g") or None)
        changes = "+changes" if git_output(path, "status", "--porcelain", "-uno", "--", "vllm") else ""
        commit = git_output(path, "rev-parse", "--short=9", "HEAD")
        return cls(path, written.get("version") or _tagged(path), f"{commit}{changes}" if commit else None)

    @property
    def requirements(self) -> Path | None:
        """The file with the requirements for every device; None if it is missing."""
        path = self.path / "requirements" / "common.txt"
        return path if path.exists() else None

    @property
    def requirements_digest(self) -> str | None:
        """A hash of the requirements file; None if it is missing."""
        path = self.requirements
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path else None

    def link(self, package: Path, version: str) -> None:
        """Links the current entries of the tree's vllm/ into a package folder, except compiled kernels.

        Args:
            package: a folder of the environment; entries that are not links are kept.
            version: the version to write to `_version.py` if the tree has none because it was never built.
        """
        package.mkdir(exist_ok=True)
        entries = {
            entry.name: entry
            for entry in (self.path / "vllm").iterdir()
            if entry.name not in _LEFT_OUT and entry.suffix != ".so"
        }
        for link in filter(Path.is_symlink, list(package.iterdir())):
            if link.name not in entries or link.readlink() != entries[link.name]:
                link.unlink()
        for name, entry in entries.items():
            if not (package / name).is_symlink():
                (package / name).symlink_to(entry)
        own = self.path / "vllm" / "_version.py"
        parts = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
        text = own.read_text() if own.exists() else _VERSION_FILE.format(version=version, parts=parts)
        _write_changed(package / "_version.py", text)


def _written(path: Path) -> dict[str, str]:
    file = path / "vllm" / "_version.py"
    values = dict(re.findall(r"(version|commit_id) = '(.+?)'", file.read_text())) if file.exists() else {}
    if "version" in values:
        values["version"] = values["version"].partition("+")[0]
    return values


def _tagged(path: Path) -> str | None:
    """The version from git's tags; 12 commits after `v0.33.0`, it is 0.33.1.dev12, as in setuptools-scm."""
    description = git_output(path, "describe", "--tags", "--long", "--match", "v[0-9]*")
    match = re.fullmatch(r"v(\d+)\.(\d+)\.(\d+)\S*?-(\d+)-g\w+", description)
    if match is None:
        return None
    major, minor, patch, distance = map(int, match.groups())
    return f"{major}.{minor}.{patch + 1}.dev{distance}" if distance else f"{major}.{minor}.{patch}"


def _write_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
