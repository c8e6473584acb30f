"""The release, or the commit of a checkout, with which a verdict changed: binary search."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import InvalidVersion, Version

from vllm_harness._defects.repro.verdict import Reproduction
from vllm_harness._environments import locks
from vllm_harness._environments.git import git, git_output
from vllm_harness._environments.resolve import default_device
from vllm_harness._errors import UsageError

Try = Callable[[Sequence[str]], list[Reproduction]]
"""Reproduces the defect on some releases or commits."""


@dataclass
class Bisection:
    """What was found.

    Attributes:
        before, after: neighbours with different verdicts, `before` the one nearer to the first of the range.
        skipped: those between them that could not tell, with the reasons.
        tried: verdicts in the order in which they were measured.
    """

    before: str
    after: str
    skipped: dict[str, str] = field(default_factory=dict)
    tried: dict[str, str] = field(default_factory=dict)


def bisect(names: Sequence[str], good: str, bad: str, try_: Try, at_a_time: int = 1) -> Bisection:
    """Searches the neighbours between which the verdict changes: the ends first, then between them.

    Args:
        names: in order, the first and the last of them `good` and `bad`, in either order.
        good: does not show the defect.
        bad: shows it.
        try_: reproduces it; another verdict than `reproduced` or `fixed` is skipped.
        at_a_time: how many are tried together: one halves what is left.

    Raises:
        UsageError: the verdict of `good` is not `fixed`, or that of `bad` not `reproduced`.
    """
    found = Bisection(names[0], names[-1])
    ends = [(good, "fixed"), (bad, "reproduced")]
    for together in [ends] if at_a_time > 1 else [ends[:1], ends[1:]]:
        for (name, wanted), outcome in zip(together, try_([name for name, _ in together]), strict=True):
            found.tried[name] = outcome.verdict
            if outcome.verdict != wanted:
                raise _wrong_end(name, wanted, outcome)
    low, high, skipped = 0, len(names) - 1, dict[int, str]()
    first, last = found.tried[names[0]], found.tried[names[-1]]
    while left := [index for index in range(low + 1, high) if index not in skipped]:
        chosen = spread(left, at_a_time)
        lows, highs = [low], [high]
        for index, outcome in zip(chosen, try_([names[index] for index in chosen]), strict=True):
            found.tried[names[index]] = outcome.verdict
            if outcome.verdict == first:
                lows.append(index)
            elif outcome.verdict == last:
                highs.append(index)
            else:
                skipped[index] = outcome.why or outcome.verdict
        high = min(highs)
        low = max(index for index in lows if index < high)
    found.before, found.after = names[low], names[high]
    found.skipped = {names[index]: why for index, why in skipped.items() if low < index < high}
    return found


def _wrong_end(name: str, wanted: str, outcome: Reproduction) -> UsageError:
    option = "--good" if wanted == "fixed" else "--bad"
    why = f": {outcome.why}" if outcome.why else ""
    return UsageError(
        f"{option} {name} is {outcome.verdict}, not {wanted}{why}",
        hint="name one that is right with --good and one that shows the defect with --bad",
    )


def spread(indices: Sequence[int], number: int) -> list[int]:
    """So many of these, evenly: one is the middle."""
    number = min(number, len(indices))
    return [indices[(place + 1) * len(indices) // (number + 1)] for place in range(number)]


def releases_between(good: str, bad: str) -> list[str]:
    """The releases that can be made here from the older to the newer of two, these included.

    Raises:
        UsageError: one is no version.
    """
    first, last = sorted((good, bad), key=_version)
    known = {lock.version for lock in locks.locks() if lock.device == default_device()}
    between = (each for each in known if _version(first) < _version(each) < _version(last))
    return [first, *sorted(between, key=_version), last]


def _version(spec: str) -> Version:
    try:
        return Version(spec.partition("@")[0])
    except InvalidVersion as error:
        raise UsageError(
            f"{spec!r} is no release of vLLM", hint="write it as 0.32.0; commits want --tree"
        ) from error


def commits_between(tree: Path, good: str, bad: str) -> list[str]:
    """The commits from one revision to the other, the first parent of each merge followed, these included.

    Raises:
        UsageError: no checkout with history, no such revision, or none is an ancestor of the other.
    """
    first, last = commit_of(tree, good), commit_of(tree, bad)
    if not _is_ancestor(tree, first, last):
        first, last = last, first
    if not _is_ancestor(tree, first, last):
        raise UsageError(
            f"{good} and {bad} are not on one line of history", hint="name an ancestor of the other"
        )
    between = git_output(tree, "rev-list", "--first-parent", "--reverse", f"{first}..{last}", required=True)
    return [first, *between.split()]


def commit_of(tree: Path, revision: str) -> str:
    """The commit of a revision. Raises UsageError where there is none."""
    return git_output(tree, "rev-parse", "--verify", f"{revision}^{{commit}}", required=True)


@contextmanager
def checkouts(tree: Path) -> Iterator[Callable[[str], Path]]:
    """Yields what checks out a commit, in a working tree beside that of the user, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="vllm-harness-bisect-") as scratch:
        folder = Path(scratch, "tree")
        git_output(tree, "worktree", "add", "--detach", "--quiet", str(folder), "HEAD", required=True)

        def check_out(commit: str) -> Path:
            git_output(folder, "checkout", "--detach", "--quiet", "--force", commit, required=True)
            return folder

        try:
            yield check_out
        finally:
            git_output(tree, "worktree", "remove", "--force", str(folder), required=True)


def subject(tree: Path, commit: str) -> str:
    """A commit in a line."""
    return git_output(tree, "show", "--no-patch", "--format=%h %s", commit, required=True)


def _is_ancestor(tree: Path, first: str, last: str) -> bool:
    return git(tree, "merge-base", "--is-ancestor", first, last).returncode == 0
