"""Finds the release or the commit that changed a verdict, by binary search."""

from __future__ import annotations

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
from vllm_harness._files.temporary import temporary_folder

Try = Callable[[Sequence[str]], list[Reproduction]]
"""Reproduces the defect on several releases or commits."""


@dataclass
class Bisection:
    """The result of a bisection.

    Attributes:
        before, after: neighbouring releases or commits with different verdicts, in the order of the range.
        skipped: the releases or commits between them without a clear verdict, with the reasons.
        tried: the verdict on each release or commit that was tried, in that order.
    """

    before: str
    after: str
    skipped: dict[str, str] = field(default_factory=dict)
    tried: dict[str, str] = field(default_factory=dict)


def bisect(names: Sequence[str], good: str, bad: str, try_: Try, at_a_time: int = 1) -> Bisection:
    """Finds the neighbouring releases or commits with different verdicts; tries both ends first.

    Args:
        names: all releases or commits in order, from `good` to `bad` or from `bad` to `good`.
        good: the name of the release or commit that does not show the defect.
        bad: the name of the release or commit that shows it.
        try_: reproduces the defect; names with verdicts other than `reproduced` and `fixed` are skipped.
        at_a_time: the number of names to try together; 1 makes a binary search.

    Raises:
        UsageError: the verdict of `good` is not `fixed`, or that of `bad` not `reproduced`.
    """
    result = Bisection(names[0], names[-1])
    ends = [(good, "fixed"), (bad, "reproduced")]
    for together in [ends] if at_a_time > 1 else [ends[:1], ends[1:]]:
        for (name, expected), outcome in zip(together, try_([name for name, _ in together]), strict=True):
            result.tried[name] = outcome.verdict
            if outcome.verdict != expected:
                raise _wrong_end(name, expected, outcome)
    low, high, skipped = 0, len(names) - 1, dict[int, str]()
    first, last = result.tried[names[0]], result.tried[names[-1]]
    while untried := [index for index in range(low + 1, high) if index not in skipped]:
        chosen = spread(untried, at_a_time)
        lows, highs = [low], [high]
        for index, outcome in zip(chosen, try_([names[index] for index in chosen]), strict=True):
            result.tried[names[index]] = outcome.verdict
            if outcome.verdict == first:
                lows.append(index)
            elif outcome.verdict == last:
                highs.append(index)
            else:
                skipped[index] = outcome.why or outcome.verdict
        high = min(highs)
        low = max(index for index in lows if index < high)
    result.before, result.after = names[low], names[high]
    result.skipped = {names[index]: why for index, why in skipped.items() if low < index < high}
    return result


def _wrong_end(name: str, expected: str, outcome: Reproduction) -> UsageError:
    option = "--good" if expected == "fixed" else "--bad"
    why = f": {outcome.why}" if outcome.why else ""
    return UsageError(
        f"{option} {name} is {outcome.verdict}, not {expected}{why}",
        hint="--good must not show the defect, and --bad must show it",
    )


def spread(indices: Sequence[int], number: int) -> list[int]:
    """Selects this number of evenly spaced indices; the middle one if the number is 1."""
    number = min(number, len(indices))
    return [indices[(place + 1) * len(indices) // (number + 1)] for place in range(number)]


def releases_between(good: str, bad: str) -> list[str]:
    """Lists two releases and those between them that can be installed on this machine, oldest first.

    Raises:
        UsageError: `good` or `bad` is not a version.
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
            f"{spec!r} is not a release of vLLM", hint="write it as 0.32.0; for commits, add --tree"
        ) from error


def commits_between(tree: Path, good: str, bad: str) -> list[str]:
    """Lists the commits between two revisions along first parents, both revisions included.

    Raises:
        UsageError: a revision is unknown, or neither is an ancestor of the other.
    """
    first, last = commit_of(tree, good), commit_of(tree, bad)
    if not _is_ancestor(tree, first, last):
        first, last = last, first
    if not _is_ancestor(tree, first, last):
        raise UsageError(
            f"neither of {good} and {bad} is an ancestor of the other", hint="choose two commits of a branch"
        )
    between = git_output(tree, "rev-list", "--first-parent", "--reverse", f"{first}..{last}", required=True)
    return [first, *between.split()]


def commit_of(tree: Path, revision: str) -> str:
    """Resolves a revision to a commit. Raises UsageError if it is unknown."""
    return git_output(tree, "rev-parse", "--verify", f"{revision}^{{commit}}", required=True)


@contextmanager
def checkouts(tree: Path) -> Iterator[Callable[[str], Path]]:
    """Yields a function that checks out a commit in a temporary working tree."""
    with temporary_folder() as scratch:
        folder = scratch / "tree"
        git_output(tree, "worktree", "add", "--detach", "--quiet", str(folder), "HEAD", required=True)

        def check_out(commit: str) -> Path:
            git_output(folder, "checkout", "--detach", "--quiet", "--force", commit, required=True)
            return folder

        try:
            yield check_out
        finally:
            git_output(tree, "worktree", "remove", "--force", str(folder), required=True)


def subject(tree: Path, commit: str) -> str:
    """Describes a commit in one line."""
    return git_output(tree, "show", "--no-patch", "--format=%h %s", commit, required=True)


def _is_ancestor(tree: Path, first: str, last: str) -> bool:
    return git(tree, "merge-base", "--is-ancestor", first, last).returncode == 0
