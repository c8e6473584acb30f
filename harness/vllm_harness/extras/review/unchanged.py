"""The code that a working tree is compared with: a release, or a revision of the checkout."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path

from vllm_harness import _regression
from vllm_harness._environments.git import git, git_output
from vllm_harness._environments.resolve import resolve
from vllm_harness._environments.spec import Environment, parse
from vllm_harness._environments.store import folder_of
from vllm_harness._environments.under_test import VllmUnderTest
from vllm_harness._errors import UsageError
from vllm_harness._files.locking import locked_for_making
from vllm_harness._files.paths import state_dir
from vllm_harness._regression.results.cells import RegressionRun
from vllm_harness._terminal.status import Progress
from vllm_harness.extras.bundles.install import extract

_REGRESSION = Path(_regression.__file__).parent
_COMMIT = "commit"
"""The name of the file that contains the commit, beside the code of a revision."""


@dataclass(frozen=True)
class Unchanged:
    """The code before a change.

    Attributes:
        title: its name for messages.
        package: the folder of its vLLM package.
        commit: the commit of a revision; None for a release.
    """

    title: str
    package: Path
    spec: str
    commit: str | None = None

    def vllm(self, progress: Progress) -> VllmUnderTest:
        """Makes the environment of this code if it is missing, under a name that is unique to the code."""
        environment = resolve(self.spec, device="cpu", create=True, progress=progress)
        names = [folder_of(environment).name, *filter(None, [self.commit])]
        return VllmUnderTest("-".join(names), environment)


def cells_before() -> RegressionRun:
    """The run that stores the cells of unchanged code; a change to any file below `_REGRESSION` renews it."""
    digest = hashlib.sha256()
    for path in sorted(_REGRESSION.rglob("*.py")):
        digest.update(path.read_bytes())
    return RegressionRun(state_dir() / "regression-unchanged" / digest.hexdigest()[:16])


def unchanged(tree: Environment, revision: str, progress: Progress) -> Unchanged:
    """The code before a change.

    Args:
        tree: the environment of the code after the change, which is mostly a working tree.
        revision: a revision of the checkout, or the spec of other code; empty for HEAD. A tree that is not a
            checkout is compared with a release.
        progress: receives a line for each step.

    Raises:
        UsageError: there is no such revision, or one is given and the tree is not a checkout.
    """
    if revision and is_spec(revision):
        return _released(revision, resolve(revision, device="cpu", create=True, progress=progress))
    if tree.tree is None:
        raise UsageError(
            f"there is nothing to compare {tree.describe()} with", hint="name another release with --base"
        )
    if is_checkout(tree.tree):
        return _of_revision(tree, revision or "HEAD", progress)
    if revision:
        raise UsageError(
            f"{tree.tree} is not a git checkout, so it has no revision {revision}",
            hint="name a release instead, or none to compare the tree with the release of its version",
        )
    return _of_release(tree, progress)


def is_checkout(tree: Path) -> bool:
    """Whether a folder is the top of a git checkout."""
    return git_output(tree, "rev-parse", "--show-toplevel") == str(tree)


def commit_before(tree: Path, revision: str) -> str:
    """The commit from which the work on HEAD left a revision, or the revision itself.

    Raises:
        UsageError: there is no such revision.
    """
    commit = git_output(tree, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if not commit:
        raise UsageError(
            f"{tree} has no revision {revision}",
            hint="name a commit, branch or tag; a shallow clone lacks most of them: git fetch --unshallow",
        )
    return git_output(tree, "merge-base", commit, "HEAD") or commit


def is_spec(base: str) -> bool:
    """Whether a base is the spec of an environment, not a revision."""
    try:
        parse(base)
    except UsageError:
        return False
    return True


def _of_release(tree: Environment, progress: Progress) -> Unchanged:
    kernels, version = str(tree.kernels), tree.vllm_version
    for spec in (f"{version}@{kernels}", version) if version != kernels else ():
        try:
            return _released(spec, resolve(spec, device="cpu"))
        except UsageError:  # it is not made, or there is no such release
            continue
    return _released(kernels, resolve(kernels, device="cpu", create=True, progress=progress))


def _released(spec: str, environment: Environment) -> Unchanged:
    assert environment.package is not None
    return Unchanged(f"{environment.kind} {spec}", environment.package, spec)


def _of_revision(tree: Environment, revision: str, progress: Progress) -> Unchanged:
    """A revision, unpacked into the state folder; the checkout is not changed."""
    assert tree.tree is not None
    commit = commit_before(tree.tree, revision)
    name = f"{tree.tree.name}-{hashlib.sha256(str(tree.tree).encode()).hexdigest()[:8]}"
    folder = state_dir() / "revisions" / name
    with locked_for_making(folder, progress):
        if not (folder / _COMMIT).is_file() or (folder / _COMMIT).read_text() != commit:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            with tarfile.open(fileobj=io.BytesIO(git(tree.tree, "archive", commit).stdout)) as archive:
                extract(archive, folder)
            (folder / _COMMIT).write_text(commit)
    return Unchanged(f"revision {commit[:9]}", folder / "vllm", f"tree:{folder}@{tree.kernels}", commit[:12])
