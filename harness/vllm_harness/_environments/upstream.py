"""Compares the Python code of an environment with vLLM's official source distribution."""

from __future__ import annotations

import hashlib
import tarfile
from dataclasses import dataclass
from pathlib import Path

from vllm_harness._environments.source_archives import source_archive
from vllm_harness._environments.spec import Environment
from vllm_harness._files.locking import locked_for_making
from vllm_harness._files.paths import cache_dir
from vllm_harness._terminal.status import Progress, quiet


@dataclass(frozen=True)
class SourceComparison:
    """The number of identical Python files, and the paths of files that differ, are missing or were added."""

    same: int
    changed: tuple[str, ...]
    missing: tuple[str, ...]
    added: tuple[str, ...]


def compare(environment: Environment, *, progress: Progress = quiet) -> SourceComparison:
    """Compares all Python files. Raises SourceUnavailableError if the index has no source of the version."""
    assert environment.package
    official = _python_files(source(environment.vllm_version, progress))
    actual = {
        str(path.relative_to(environment.package)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in environment.python_files()
    }
    return SourceComparison(
        same=sum(actual.get(name) == digest for name, digest in official.items()),
        changed=tuple(
            sorted(name for name in official.keys() & actual.keys() if official[name] != actual[name])
        ),
        missing=tuple(sorted(official.keys() - actual.keys())),
        added=tuple(sorted(actual.keys() - official.keys())),
    )


def _python_files(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as tar:
        members = {
            member: member.name.split("/", 2)[2]
            for member in tar
            if member.isfile() and member.name.endswith(".py") and member.name.split("/")[1] == "vllm"
        }
        return {name: _sha256(tar, member) for member, name in members.items()}


def _sha256(tar: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    content = tar.extractfile(member)
    assert content is not None
    return hashlib.sha256(content.read()).hexdigest()


def source(version: str, progress: Progress) -> Path:
    """Fetches the official source distribution into the cache. Raises SourceUnavailableError."""
    path = cache_dir() / "sources" / f"vllm-{version}.tar.gz"
    with locked_for_making(path, progress):
        return path if path.exists() else source_archive(f"vllm=={version}", path.parent, progress)
