"""Lock files are waited for aloud."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from filelock import FileLock

from vllm_harness.files import waiting
from vllm_harness.terminal import notices


def test_a_wait_for_a_lock_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SILENT_S", 0.05)
    monkeypatch.setattr(waiting, "TELL_EVERY_S", 0.05)
    path = tmp_path / "lock"
    other = FileLock(path, thread_local=False)
    other.acquire()
    said: list[str] = []
    told_twice = threading.Event()

    def hear(text: str) -> None:
        said.append(text)
        if len(said) == 2:
            told_twice.set()

    threading.Thread(target=lambda: (told_twice.wait(), other.release())).start()
    with notices.shown_by(hear), waiting.locked(path, "another run"):
        assert said[0].startswith("waiting for another run (")


def test_a_free_lock_is_taken_without_a_word(tmp_path: Path) -> None:
    said: list[str] = []
    with notices.shown_by(said.append), waiting.locked(tmp_path / "lock", "nobody"):
        pass
    assert said == []
