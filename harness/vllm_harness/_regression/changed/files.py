"""Which Python files of vLLM's package a change has touched."""

from __future__ import annotations

import os
from pathlib import Path

_WRITTEN_BY_BUILDS = "_version.py"


def changed_files(before: Path, after: Path) -> tuple[str, ...]:
    """The Python files, by their paths below the package, that differ, or that one of two packages lacks.

    Args:
        before, after: folders of vLLM's package.
    """
    old, new = _python_files(before), _python_files(after)
    kept = {name for name in old.keys() & new.keys() if _is_same(old[name], new[name])}
    return tuple(sorted((old.keys() | new.keys()) - kept))


def _python_files(package: Path) -> dict[str, Path]:
    """The files by their paths below the package, through links."""
    found: dict[str, Path] = {}
    for folder, folders, names in os.walk(package, followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = Path(folder, name)
            if name.endswith(".py") and path.is_file():  # an editor's lock files are dangling links
                found[path.relative_to(package).as_posix()] = path
    found.pop(_WRITTEN_BY_BUILDS, None)
    return found


def _is_same(old: Path, new: Path) -> bool:
    return old.stat().st_size == new.stat().st_size and old.read_bytes() == new.read_bytes()
