"""A disk that fills up during a run: exit code 3, what was written stays readable, and the server ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.places import NO_MOUNTS, can_mount

RUN = """
mount -t tmpfs -o size="$1",mode=700 none "$VLLM_HARNESS_STATE" && cd "$2" && shift 2 || exit 99
"$@"
code=$?
cp -r "$VLLM_HARNESS_STATE/runs" copied
exit $code
"""
"""Runs a command with its state on a small disk, and copies the runs before the disk vanishes."""


@pytest.mark.vllm_slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("size", "words"),
    [
        pytest.param(
            "400k", "load etl-three-turns --requests 2000 --concurrency 4", marks=pytest.mark.extra("load")
        ),
        ("260k", "run"),
    ],
    ids=["load", "run"],
)
def test_a_disk_that_fills_up(size: str, words: str, tmp_path: Path) -> None:
    if not can_mount():
        pytest.skip(NO_MOUNTS)
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    command = [
        sys.executable,
        "-m",
        "vllm_harness.cli.start",
        *words.split(),
        "--model",
        "qwen3",
        "--lane",
        "scripted",
    ]
    environ = os.environ | {"VLLM_HARNESS_STATE": str(disk), "VLLM_HARNESS_LINGER_S": "0"}
    space = ["unshare", *(["--map-root-user"] if os.geteuid() else []), "--mount", "bash", "-c", RUN, "bash"]
    ended = subprocess.run(
        [*space, size, str(tmp_path), *command], env=environ, capture_output=True, text=True
    )
    assert ended.returncode == 3, ended.stderr
    assert f"{disk}" in ended.stderr
    assert "No space left on device" in ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr
    assert [pid for pid in Path("/proc").glob("[0-9]*") if str(disk) in _environ(pid)] == []
    (records,) = (tmp_path / "copied").glob("*/records.jsonl")
    assert records.read_bytes().endswith(b"\n")
    header, *others = [json.loads(line)["type"] for line in records.read_text().splitlines()]
    assert header == "header"
    assert others
    report = [
        sys.executable,
        "-m",
        "vllm_harness.cli.start",
        "report",
        str(records.parent),
        "--format",
        "markdown",
    ]
    shown = subprocess.run(report, capture_output=True, text=True)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("# vLLM harness: ")


def _environ(process: Path) -> str:
    try:
        return (process / "environ").read_text(errors="replace")
    except OSError:
        return ""
