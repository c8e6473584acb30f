"""Compares the Python code of an environment with vLLM's official source distribution."""

from __future__ import annotations

import hashlib
import importlib
import tarfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

import requests

from vllm_harness._environments.installer import InstallError, uv_environ
from vllm_harness._environments.spec import Environment
from vllm_harness._files.locking import locked_for_making
from vllm_harness._files.paths import cache_dir
from vllm_harness._terminal.status import Progress, quiet

_JSON = "application/vnd.pypi.simple.v1+json"
_LIMIT_S = 60


@dataclass(frozen=True)
class SourceComparison:
    """The number of identical Python files, and the paths of files that differ, are missing or were added."""

    same: int
    changed: tuple[str, ...]
    missing: tuple[str, ...]
    added: tuple[str, ...]


def compare(environment: Environment, *, progress: Progress = quiet) -> SourceComparison:
    """Compares all Python files. Raises InstallError if the index has no source for this version."""
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


def _index() -> str:
    """The configured package index, or otherwise pip's default."""
    default = importlib.import_module("pip._internal.models.index").PyPI.simple_url
    return str(uv_environ().get("UV_DEFAULT_INDEX", default))


def source(version: str, progress: Progress) -> Path:
    """Fetches the official source distribution into the cache. Raises InstallError."""
    name = f"vllm-{version}.tar.gz"
    path = cache_dir() / "sources" / name
    with locked_for_making(path, progress):
        if path.exists():
            return path
        progress(f"fetching {name}")
        page = f"{_index().rstrip('/')}/vllm/"
        try:
            files = requests.get(page, headers={"Accept": _JSON}, timeout=_LIMIT_S).json()["files"]
            listed = next(file for file in files if file["filename"] == name)
            answer = requests.get(urljoin(page, listed["url"]), timeout=_LIMIT_S)
            answer.raise_for_status()
        except (requests.RequestException, ValueError, KeyError, StopIteration) as error:
            raise InstallError(
                f"{page} does not have {name}: {error or 'it lists no such file'}",
                hint="use an index that supports JSON (PEP 691), as PyPI does",
            ) from error
        if hashlib.sha256(answer.content).hexdigest() != listed["hashes"]["sha256"]:
            raise InstallError(
                f"{name} from {page} does not have the sha256 that the index lists",
                hint="run the command again",
            )
        half = path.with_suffix(".half")
        half.write_bytes(answer.content)
        return half.replace(path)
