"""The code that a working tree is compared with: a release of its version, or a revision of the checkout."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path

from vllm_harness._environments.git import git
from vllm_harness._environments.resolve import resolve
from vllm_harness._environments.spec import Environment
from vllm_harness._environments.store import MissingEnvironmentError, folder_of
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import UsageError
from vllm_harness._files.locking import locked_for_making
from vllm_harness._files.paths import state_dir
from vllm_harness._regression.results.cells import RegressionRun
from vllm_harness._terminal.status import Progress

_REGRESSION = Path(__file__).parents[1]
_COMMIT = "commit"
"""The file beside the code of a revision that says which it is."""


@dataclass(frozen=True)
class Unchanged:
    """The code before a change.

    Attributes:
        title: its name in a sentence.
        package: the folder of its vLLM package.
        spec: of its environment.
        commit: the revision that it is of; None: a release.
    """

    title: str
    package: Path
    spec: str
    commit: str | None = None

    def vllm(self, progress: Progress) -> VllmUnderTest:
        """Its environment, made where it is missing, under a name that no other code has."""
        environment = resolve(self.spec, device="cpu", create=True, progress=progress)
        names = [folder_of(environment).name, *filter(None, [self.commit])]
        return VllmUnderTest("-".join(names), environment)


def cells_before() -> RegressionRun:
    """Where the cells of unchanged code are kept; anew where the harness judges otherwise."""
    digest = hashlib.sha256()
    for path in sorted(_REGRESSION.rglob("*.py")):
        digest.update(path.read_bytes())
    return RegressionRun(state_dir() / "regression-unchanged" / digest.hexdigest()[:16])


def unchanged(tree: Environment, revision: str, progress: Progress) -> Unchanged:
    """The code that a working tree was changed from.

    Args:
        tree: the environment of the working tree.
        revision: of a checkout; empty: HEAD. A tree that is no checkout is compared with a release.
        progress: receives a line for each step.

    Raises:
        UsageError: there is no such revision, or the tree is no checkout.
    """
    assert tree.tree is not None
    if _git(tree.tree, "rev-parse", "--show-toplevel").strip() == str(tree.tree).encode():
        return _of_revision(tree, revision or "HEAD", progress)
    if revision:
        raise UsageError(
            f"{tree.tree} is no checkout of git, so it has no revision {revision}",
            hint="leave --changed-from out: the tree is then compared with the release of its version",
        )
    return _of_release(tree, progress)


def _of_release(tree: Environment, progress: Progress) -> Unchanged:
    kernels, version = str(tree.kernels), tree.vllm_version
    for spec in (f"{version}@{kernels}", version) if version != kernels else ():
        try:
            return _released(spec, resolve(spec, device="cpu"))
        except (MissingEnvironmentError, UsageError):  # not made, or no such release
            continue
    return _released(kernels, resolve(kernels, device="cpu", create=True, progress=progress))


def _released(spec: str, environment: Environment) -> Unchanged:
    assert environment.package is not None
    return Unchanged(f"{environment.kind} {spec}", environment.package, spec)


def _of_revision(tree: Environment, revision: str, progress: Progress) -> Unchanged:
    """A revision, unpacked into a folder of the harness's: the checkout stays as it is."""
    assert tree.tree is not None
    commit = _git(tree.tree, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").decode().strip()
    if not commit:
        raise UsageError(
            f"{tree.tree} has no revision {revision}",
            hint="name a commit, a branch or a tag to --changed-from",
        )
    name = f"{tree.tree.name}-{hashlib.sha256(str(tree.tree).encode()).hexdigest()[:8]}"
    folder = state_dir() / "revisions" / name
    with locked_for_making(folder, progress):
        if not (folder / _COMMIT).is_file() or (folder / _COMMIT).read_text() != commit:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            with tarfile.open(fileobj=io.BytesIO(_git(tree.tree, "archive", commit))) as archive:
                archive.extractall(folder, filter="data")
            (folder / _COMMIT).write_text(commit)
    return Unchanged(f"revision {commit[:9]}", folder / "vllm", f"tree:{folder}@{tree.kernels}", commit[:12])


def _git(tree: Path, *arguments: str) -> bytes:
    """What git prints; nothing where it fails."""
    answer = git(tree, *arguments)
    return answer.stdout if answer.returncode == 0 else b""
