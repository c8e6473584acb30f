"""What a change can affect: families of parsers, APIs, and prompts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from vllm_harness._environments.git import git
from vllm_harness._environments.spec import parse
from vllm_harness._scripted.families import Family
from vllm_harness.extras.review.change import CODE, few
from vllm_harness.extras.review.serving import SERVING
from vllm_harness.extras.review.touched import APIS, ApiCode, files_of_families, touched_apis
from vllm_harness.extras.review.unchanged import commit_before, is_checkout, is_spec
from vllm_harness.extras.review.verdict import Named

PROMPTS = ("renderers/*", "tokenizers/*", "transformers_utils/chat_templates/*", "entrypoints/chat_utils.py")
"""Patterns of the paths of the code that makes prompts, below vLLM's package."""
_COMPILED = ("csrc/", "rust/", "cmake/", "CMakeLists.txt", "setup.py", "requirements/", "pyproject.toml")
_PACKAGE = "vllm/"


@dataclass(frozen=True)
class Scope:
    """What a change can affect.

    Attributes:
        families: the families whose parsers reach a changed file.
        files: family -> the changed files that its parsers reach.
        apis: the APIs whose code, or whose prompts, the change can affect.
        not_run: the changed files for which there is no test, with the reason.
    """

    families: tuple[Family, ...]
    files: dict[str, tuple[str, ...]]
    apis: tuple[ApiCode, ...]
    not_run: tuple[Named, ...]

    def files_of(self, family: str) -> tuple[str, ...]:
        """The changed files that the parsers of a family reach."""
        return self.files.get(family, ())


def scope_of(package: Path, families: Collection[Family], changed: Collection[str]) -> Scope:
    """Finds what a change can affect.

    Args:
        package: the folder of vLLM's package after the change.
        families: the candidates.
        changed: the changed files, as paths below the package.
    """
    files = files_of_families(package, families, changed)
    served = [name for name in changed if _is_like(name, SERVING)]
    prompts = [name for name in changed if _is_like(name, PROMPTS)]
    apis = APIS if prompts else touched_apis(package, served) if served else ()
    reached = {name for names in files.values() for name in names}
    others = sorted({*changed} - reached - {*served, *prompts})
    reason = "no parser, API or prompt depends on this code by the imports that the harness follows"
    return Scope(
        tuple(family for family in families if files[family.name]),
        files,
        apis,
        (Named(what=few(others), reason=reason),) if others else (),
    )


def _is_like(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True)
class GitDifference:
    """The files that differ in a checkout, found without an environment.

    Attributes:
        package: the folder of vLLM's package in the checkout.
        commit: the commit that the checkout is compared with.
        code: the files that the harness can judge, as paths below the package.
        others: the other files, as paths below the checkout.
    """

    package: Path
    commit: str
    code: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def not_run(self) -> tuple[Named, ...]:
        """The files that only a build of vLLM would use."""
        compiled = [name for name in self.others if name.startswith(_COMPILED)]
        reason = "the harness builds no vLLM, and takes compiled code and its requirements from a release"
        return (Named(what=few(compiled), reason=reason),) if compiled else ()


def git_difference(head: str, base: str) -> GitDifference | None:
    """Finds what differs in a checkout; None if the head is not a checkout, or the base is a spec.

    Args:
        head: the spec of the tree.
        base: the revision; empty for HEAD.

    Raises:
        UsageError: there is no such revision.
    """
    tree = parse(head).tree
    if tree is None or is_spec(base) or not is_checkout(tree):
        return None
    commit = commit_before(tree, base or "HEAD")
    listed = git(tree, "diff", "--name-only", "--no-renames", "-z", commit, "--")
    further = git(tree, "ls-files", "--others", "--exclude-standard", "-z", "--", "vllm")
    names = {
        name for output in (listed, further) for name in output.stdout.decode(errors="replace").split("\0")
    }
    code = {name for name in names if name.startswith(_PACKAGE) and name.endswith(CODE)}
    below = tuple(sorted(name.removeprefix(_PACKAGE) for name in code))
    return GitDifference(tree / "vllm", commit, below, tuple(sorted(names - code - {""})))
