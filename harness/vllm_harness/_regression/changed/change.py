"""A change of vLLM: a working tree, the code before it, and the files that differ."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vllm_harness._environments.resolve import resolve
from vllm_harness._environments.spec import Environment, parse
from vllm_harness._errors import UsageError
from vllm_harness._regression.changed.files import changed_files
from vllm_harness._regression.changed.unchanged import Unchanged, unchanged
from vllm_harness._terminal.status import Progress


@dataclass(frozen=True)
class Change:
    """A change of vLLM.

    Attributes:
        environment: of the working tree.
        package: the folder of its vLLM package.
        before: the code that it is compared with.
        files: those that differ, by their paths below the package.
    """

    environment: Environment
    package: Path
    before: Unchanged
    files: tuple[str, ...]

    @classmethod
    def of(cls, spec: str, revision: str, progress: Progress) -> Change:
        """The change of a working tree, whose environment is made where it is missing.

        Args:
            spec: of the tree.
            revision: that it is compared with, where it is a checkout; empty: HEAD.
            progress: receives a line for each step.

        Raises:
            UsageError: the spec names no working tree, or the tree has no such revision.
        """
        if parse(spec).kind != "tree":
            raise UsageError(
                f"--changed takes one working tree, and `{spec}` is none",
                hint="write it as tree:/path/to/vllm@0.32.0",
            )
        environment = resolve(spec, create=True, progress=progress)
        assert environment.package is not None
        before = unchanged(environment, revision, progress)
        return cls(
            environment, environment.package, before, changed_files(before.package, environment.package)
        )

    def __str__(self) -> str:
        if not self.files:
            return f"no Python file of the tree differs from {self.before.title}: nothing to run"
        return f"{len(self.files)} changed against {self.before.title}: {few(self.files)}"


def few(names: tuple[str, ...], most: int = 8) -> str:
    """The first of some names, and how many others there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
