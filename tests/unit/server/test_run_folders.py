"""Folders of earlier runs: their number and size are limited, and the newest stay."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from vllm_harness._server import records

HOUR = 3600


@pytest.mark.parametrize(
    ("most", "size", "names"),
    [(40, 1000, "abcde"), (2, 1000, "cde"), (4, 1000, "bcde"), (40, 250, "de"), (40, 50, "")],
)
def test_older_folders_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, size: int, names: str
) -> None:
    """`a` and `b` are more than a day old; the number of the others is not limited."""
    for name, age_h in zip("abcde", (50, 49, 3, 2, 1), strict=True):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "server.log").write_text("x" * 100)
        os.utime(folder, (time.time() - age_h * HOUR,) * 2)
    monkeypatch.setattr(records, "state_dir", lambda: tmp_path)
    monkeypatch.setattr(records, "_RUN", None)
    monkeypatch.setattr(records, "KEPT_RUNS", most)
    monkeypatch.setattr(records, "KEPT_BYTES", size)
    folder = records.run_folder()
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {*names, folder.name}


def test_the_folder_of_a_running_process_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "60"]) as running, subprocess.Popen(["true"]) as ended:
        ended.wait()
        names = [f"20260101-101500-{process.pid}" for process in (running, ended)]
        for name in names:
            (tmp_path / "runs" / name).mkdir(parents=True)
        monkeypatch.setattr(records, "state_dir", lambda: tmp_path)
        monkeypatch.setattr(records, "_RUN", None)
        monkeypatch.setattr(records, "KEPT_RUNS", 0)
        monkeypatch.setattr(records, "KEPT_S", 0.0)
        folder = records.run_folder()
        assert {path.name for path in (tmp_path / "runs").iterdir()} == {names[0], folder.name}
        running.kill()
