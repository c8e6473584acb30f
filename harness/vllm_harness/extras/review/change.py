"""A change to vLLM: the code before and after it, and the files that differ."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from vllm_harness._environments.resolve import resolve
from vllm_harness._environments.spec import Environment, parse
from vllm_harness._errors import UsageError
from vllm_harness._terminal.status import Progress
from vllm_harness.extras.review.unchanged import Unchanged, unchanged

_WRITTEN_BY_BUILDS = "_version.py"
CODE = (".py", ".jinja")
"""The files that the harness can judge: Python code, and chat templates."""


@dataclass(frozen=True)
class Change:
    """A change to vLLM.

    Attributes:
        spec: the spec of the code after the change.
        package: the folder of vLLM's package in it.
        files: the files that differ, as paths below the package.
    """

    spec: str
    environment: Environment
    package: Path
    before: Unchanged
    files: tuple[str, ...] = field(default=())

    @classmethod
    def of(cls, spec: str, base: str, progress: Progress) -> Change:
        """Finds the change of a working tree or of another release, and makes its environment if missing.

        Args:
            spec: the spec of the code after the change.
            base: a revision of the tree, or a spec; empty for the HEAD of a checkout, or for the release that
                a tree was unpacked from.
            progress: receives a line for each step.

        Raises:
            UsageError: there is no such revision, or no base for code that is not a working tree.
        """
        environment = resolve(
            spec, device=None if parse(spec).kind == "installed" else "cpu", create=True, progress=progress
        )
        if environment.package is None:
            raise UsageError(
                f"the folder of vLLM's package in `{spec}` is unknown",
                hint="name a release, a graft or a working tree",
            )
        before = unchanged(environment, base, progress)
        files = changed_files(before.package, environment.package)
        return cls(spec, environment, environment.package, before, files)

    @classmethod
    def of_tree(cls, spec: str, revision: str, progress: Progress) -> Change:
        """Like `of`, for the options `--changed`, which need a working tree."""
        if parse(spec).kind != "tree":
            raise UsageError(
                f"--changed needs a working tree, and `{spec}` is not one",
                hint="write it as tree:/path/to/vllm@0.32.0",
            )
        return cls.of(spec, revision, progress)

    def __str__(self) -> str:
        if not self.files:
            return f"no code of vLLM differs from {self.before.title}: nothing to run"
        return f"{len(self.files)} changed against {self.before.title}: {few(self.files)}"


def changed_files(before: Path, after: Path) -> tuple[str, ...]:
    """The files with code that differ between two folders of vLLM's package, or that one of them lacks."""
    old, new = _code_files(before), _code_files(after)
    same = {name for name in old.keys() & new.keys() if _is_same(old[name], new[name])}
    return tuple(sorted((old.keys() | new.keys()) - same))


def _code_files(package: Path) -> dict[str, Path]:
    """The files with code by path below the package; symbolic links are followed."""
    files: dict[str, Path] = {}
    for folder, folders, names in os.walk(package, followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = Path(folder, name)
            if name.endswith(CODE) and path.is_file():  # an editor's lock files are dangling links
                files[path.relative_to(package).as_posix()] = path
    files.pop(_WRITTEN_BY_BUILDS, None)
    return files


def _is_same(old: Path, new: Path) -> bool:
    return old.stat().st_size == new.stat().st_size and old.read_bytes() == new.read_bytes()


def few(names: Iterable[str], most: int = 8) -> str:
    """The first names, separated by commas, and the number of the others."""
    every = list(names)
    more = len(every) - most
    return ", ".join(every[:most]) + (f" and {more} more" if more > 0 else "")
