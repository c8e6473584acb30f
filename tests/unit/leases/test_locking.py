"""Lock files: a wait is reported, and a free lock is taken silently."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from vllm_harness._files import locking
from vllm_harness._terminal import notices


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, list[str]], Callable[[str], None]]:
    """A function that locks a file until the function that it returns has been called twice."""
    monkeypatch.setattr(locking, "SILENT_S", 0.05)
    monkeypatch.setattr(locking, "REPORT_EVERY_S", 0.05)

    def start(path: Path, lines: list[str]) -> Callable[[str], None]:
        other = FileLock(path, thread_local=False)
        other.acquire()
        shown_twice = threading.Event()

        def show(line: str) -> None:
            lines.append(line)
            if len(lines) == 2:
                shown_twice.set()

        threading.Thread(target=lambda: (shown_twice.wait(), other.release())).start()
        return show

    return start


def test_a_wait_for_a_lock_is_shown_and_repeated(
    tmp_path: Path, hold: Callable[[Path, list[str]], Callable[[str], None]]
) -> None:
    lines: list[str] = []
    show = hold(tmp_path / "lock", lines)
    with notices.shown_by(show), locking.locked(tmp_path / "lock", "another run"):
        assert lines[0].startswith("waiting for another run (")


def test_the_caller_shows_the_wait_for_a_target(
    tmp_path: Path, hold: Callable[[Path, list[str]], Callable[[str], None]]
) -> None:
    lines: list[str] = []
    show = hold(tmp_path / ".thing.lock", lines)
    with locking.locked_for_making(tmp_path / "thing", show):
        assert lines[0].startswith("waiting for another process that is making thing (")


def test_a_free_lock_is_taken_silently(tmp_path: Path) -> None:
    lines: list[str] = []
    with notices.shown_by(lines.append), locking.locked(tmp_path / "lock", "another run"):
        pass
    assert lines == []
