"""Identifies the running harness by version and code hashes, to compare it with that in a bundle."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

import vllm_harness
from vllm_harness._files.paths import checkout

_KINDS = {".py", ".yaml"}
_NOT_OURS = {"__pycache__", "node_modules", "_data"}


class HarnessIdentity(TypedDict):
    """A harness: its version, a hash of its code, and a hash of its tests (empty if it has no tests)."""

    version: str
    code: str
    tests: str


def this_harness() -> HarnessIdentity:
    """Returns the identity of the running harness."""
    root = checkout()
    return {
        "version": importlib.metadata.version("vllm-harness"),
        "code": _digest(Path(vllm_harness.__file__).parent),
        "tests": _digest(root / "tests") if root else "",
    }


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(_files(folder)):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        ours = not _NOT_OURS & set(path.relative_to(folder).parts)
        if ours and path.suffix in _KINDS and path.is_file():
            yield path
