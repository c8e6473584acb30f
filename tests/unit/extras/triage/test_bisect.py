"""Tests bisection over names, releases and commits."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_harness._defects.repro.verdict import Reproduction, Verdict
from vllm_harness._errors import UsageError
from vllm_harness.extras.triage.bisect import (
    Try,
    bisect,
    checkouts,
    commits_between,
    releases_between,
    subject,
)


def trying(verdicts: dict[str, Verdict]) -> tuple[list[str], Try]:
    """Returns a function that returns these verdicts, and a list that records the names passed to it."""
    names: list[str] = []

    def try_(chosen: Sequence[str]) -> list[Reproduction]:
        names.extend(chosen)
        return [Reproduction(verdicts[name], why="it lacks the parser") for name in chosen]

    return names, try_


@given(st.integers(2, 40), st.data())
def test_the_neighbours_are_found(count: int, data: st.DataObject) -> None:
    change = data.draw(st.integers(1, count - 1))
    bad_first = data.draw(st.booleans())
    lacking = data.draw(st.sets(st.integers(1, max(1, count - 2)))) - {0, count - 1, change - 1, change}
    names = [str(number) for number in range(count)]
    kinds: tuple[Verdict, Verdict] = ("reproduced", "fixed") if bad_first else ("fixed", "reproduced")
    verdicts: dict[str, Verdict] = {
        name: "not applicable" if int(name) in lacking else kinds[int(name) >= change] for name in names
    }
    good, bad = (names[-1], names[0]) if bad_first else (names[0], names[-1])
    asked, try_ = trying(verdicts)
    found = bisect(names, good, bad, try_)
    assert (found.before, found.after) == (str(change - 1), str(change))
    assert found.skipped == {}
    assert len(set(asked)) == len(asked)


def test_skipped_names_between_the_neighbours() -> None:
    _, try_ = trying({"1": "fixed", "2": "not applicable", "3": "other failure", "4": "reproduced"})
    found = bisect(["1", "2", "3", "4"], "1", "4", try_)
    assert (found.before, found.after) == ("1", "4")
    assert found.skipped == {"2": "it lacks the parser", "3": "it lacks the parser"}


@pytest.mark.parametrize(("good", "bad"), [("2", "1"), ("1", "1")])
def test_wrong_ends_are_an_error(good: str, bad: str) -> None:
    _, try_ = trying({"1": "fixed", "2": "reproduced"})
    with pytest.raises(UsageError, match=r"--(good|bad) \d is "):
        bisect(["1", "2"], good, bad, try_)


def test_releases_are_in_order() -> None:
    names = releases_between("0.33.0@0.32.0", "0.24.0")
    assert (names[0], names[-1]) == ("0.24.0", "0.33.0@0.32.0")
    assert {"0.26.0", "0.32.0"} <= set(names)
    with pytest.raises(UsageError, match="not a release of vLLM"):
        releases_between("main", "0.24.0")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with three commits."""
    git(tmp_path, "init", "--quiet")
    for number in range(3):
        (tmp_path / "file").write_text(str(number))
        git(tmp_path, "add", "file")
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        git(tmp_path, *who, "commit", "--quiet", "-m", f"change {number}")
    return tmp_path


def git(folder: Path, *args: str) -> None:
    """Runs git."""
    subprocess.run(["git", "-C", str(folder), *args], check=True, capture_output=True)


def test_commits_are_checked_out_in_another_tree(repository: Path) -> None:
    commits = commits_between(repository, "HEAD", "HEAD~2")
    assert commits == commits_between(repository, "HEAD~2", "HEAD")
    assert [subject(repository, each)[8:] for each in commits] == ["change 0", "change 1", "change 2"]
    with checkouts(repository) as check_out:
        folder = check_out(commits[0])
        assert (folder / "file").read_text() == "0"
        assert (check_out(commits[1]) / "file").read_text() == "1"
        assert (repository / "file").read_text() == "2"
    assert not folder.exists()
    listed = subprocess.run(
        ["git", "-C", str(repository), "worktree", "list"], check=True, capture_output=True, text=True
    )
    assert len(listed.stdout.splitlines()) == 1


def test_a_folder_without_history_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a git repository"):
        commits_between(tmp_path, "a", "b")


@pytest.mark.parametrize("at_a_time", range(1, 6))
@pytest.mark.parametrize("change", range(1, 20))
def test_several_at_a_time_find_the_same_change(change: int, at_a_time: int) -> None:
    names = [str(number) for number in range(20)]
    rounds: list[Sequence[str]] = []

    def try_all(chosen: Sequence[str]) -> list[Reproduction]:
        rounds.append(chosen)
        return [Reproduction("fixed" if int(name) < change else "reproduced") for name in chosen]

    found = bisect(names, "0", "19", try_all, at_a_time)
    assert (found.before, found.after) == (str(change - 1), str(change))
    assert all(len(chosen) <= max(2, at_a_time) for chosen in rounds)
    tried = [name for chosen in rounds for name in chosen]
    assert len(tried) == len(set(tried))
    if at_a_time == 5:
        assert len(rounds) <= 4


def test_several_at_a_time_skip_unclear_verdicts() -> None:
    def try_all(chosen: Sequence[str]) -> list[Reproduction]:
        verdicts: dict[str, Verdict] = {
            "1": "fixed",
            "2": "other failure",
            "3": "other failure",
            "4": "reproduced",
        }
        return [Reproduction(verdicts[name], "no such flag") for name in chosen]

    found = bisect(["1", "2", "3", "4"], "1", "4", try_all, 4)
    assert (found.before, found.after) == ("1", "4")
    assert found.skipped == {"2": "no such flag", "3": "no such flag"}
