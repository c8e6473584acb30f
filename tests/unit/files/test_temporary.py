"""Temporary folders: a killed process's folder is removed by the next process, a living one's is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vllm_harness._files.temporary import temporary_folder

HOLDER = """
import sys, time
from pathlib import Path
from vllm_harness._files.temporary import temporary_folder
with temporary_folder(Path(sys.argv[1])) as folder:
    (folder / "file").touch()
    print(folder, flush=True)
    time.sleep(600)
"""


def test_the_folder_is_removed_at_the_end(tmp_path: Path) -> None:
    with temporary_folder(tmp_path) as first, temporary_folder(tmp_path) as second:
        assert {first, second} == set(tmp_path.iterdir())
        (first / "file").touch()
    assert not any(tmp_path.iterdir())


def test_a_folder_that_was_renamed_stays(tmp_path: Path) -> None:
    with temporary_folder(tmp_path) as folder:
        (folder / "file").touch()
        folder.rename(tmp_path / "target")
    assert [path.name for path in tmp_path.rglob("*")] == ["target", "file"]


def test_the_default_is_the_systems_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with temporary_folder() as folder:
        assert folder.parent == tmp_path


def test_the_next_process_removes_the_folder_of_a_killed_one(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        left = Path(holder.stdout.readline().strip())
        with temporary_folder(tmp_path):
            assert (left / "file").exists(), "its process is alive"
        holder.kill()
    assert (left / "file").exists()
    with temporary_folder(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]
