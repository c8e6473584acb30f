"""A change of vLLM: a working tree, the code before the change, and the files that differ."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from vllm_harness._environments.resolve import resolve
from vllm_harness._environments.spec import Environment, parse
from vllm_harness._errors import UsageError
from vllm_harness._terminal.status import Progress
from vllm_harness.extras.review.unchanged import Unchanged, unchanged

_WRITTEN_BY_BUILDS = "_version.py"


@dataclass(frozen=True)
class Change:
    """A change of vLLM.

    Attributes:
        package: the folder of vLLM's package in the working tree.
        files: the files that differ, as paths below the package.
    """

    environment: Environment
    package: Path
    before: Unchanged
    files: tuple[str, ...]

    @classmethod
    def of(cls, spec: str, revision: str, progress: Progress) -> Change:
        """Finds the change of a working tree, and makes its environment if it is missing.

        Args:
            spec: the spec of the tree.
            revision: the revision to compare a checkout with; empty for HEAD.
            progress: receives a line for each step.

        Raises:
            UsageError: the spec does not name a working tree, or the tree has no such revision.
        """
        if parse(spec).kind != "tree":
            raise UsageError(
                f"--changed needs a working tree, and `{spec}` is not one",
                hint="write it as tree:/path/to/vllm@0.32.0",
            )
        environment = resolve(spec, create=True, progress=progress)
        assert environment.package is not None
        before = unchanged(environment, revision, progress)
        files = changed_files(before.package, environment.package)
        return cls(environment, environment.package, before, files)

    def __str__(self) -> str:
        if not self.files:
            return f"no Python file of the tree differs from {self.before.title}: nothing to run"
        return f"{len(self.files)} changed against {self.before.title}: {few(self.files)}"


def changed_files(before: Path, after: Path) -> tuple[str, ...]:
    """The Python files that differ between two folders of vLLM's package, or that one of them lacks."""
    old, new = _python_files(before), _python_files(after)
    same = {name for name in old.keys() & new.keys() if _is_same(old[name], new[name])}
    return tuple(sorted((old.keys() | new.keys()) - same))


def _python_files(package: Path) -> dict[str, Path]:
    """The Python files by path below the package; symbolic links are followed."""
    files: dict[str, Path] = {}
    for folder, folders, names in os.walk(package, followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = Path(folder, name)
            if name.endswith(".py") and path.is_file():  # an editor's lock files are dangling links
                files[path.relative_to(package).as_posix()] = path
    files.pop(_WRITTEN_BY_BUILDS, None)
    return files


def _is_same(old: Path, new: Path) -> bool:
    return old.stat().st_size == new.stat().st_size and old.read_bytes() == new.read_bytes()


def few(names: tuple[str, ...], most: int = 8) -> str:
    """The first names, separated by commas, and the number of the others."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
