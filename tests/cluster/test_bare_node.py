"""A node that has Python, Ray and a package index, and nothing of the harness: the run brings it along."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cluster.leftovers import servers, wait_for
from vllm_harness.files.paths import cache_dir
from vllm_harness.report.run import read_run
from vllm_harness.runs.records import Outcome

ROOT = Path(__file__).parents[2]
MAKE = """
set -euo pipefail
eval "$('{python}' -P '{root}/harness/vllm_harness/environments/pip_settings.py')"
export UV_PYTHON_DOWNLOADS=never
uv venv --quiet --seed --python '{python}' "$HOME/venv" # Ray installs by the pip of its environment
uv pip install --quiet --python "$HOME/venv/bin/python" 'ray[default]=={ray}'
cd "$HOME"
"$HOME/venv/bin/ray" start --head --port=0 --num-cpus=2 --memory=4294967296 --object-store-memory=83886080 \\
    --include-dashboard=false --temp-dir="$HOME/ray" --disable-usage-stats
"""


@pytest.fixture
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a node with an empty home, which only shares the folder of what was downloaded."""
    ray = pytest.importorskip(
        "ray", reason="Ray is not installed; scripts/cluster makes an environment with it"
    )
    home = tmp_path_factory.mktemp("node")
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    environ = {
        **kept,
        "HOME": str(home),
        "VLLM_HARNESS_CACHE": str(cache_dir()),
        "VLLM_HARNESS_STATE": str(home / "state"),
        "UV_CACHE_DIR": str(Path.home() / ".cache" / "uv"),
        "RAY_worker_niceness": "0",
    }
    script = MAKE.format(python=sys.executable, root=ROOT, ray=ray.__version__)
    made = subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True)
    try:
        assert made.returncode == 0, made.stdout + made.stderr
        address = re.search(r"--address='([^']+)'", made.stdout)
        assert address, made.stdout
        yield address[1]
    finally:
        for process in psutil.process_iter(["exe", "cmdline"]):
            if str(home) in " ".join(process.info["cmdline"] or ()):
                process.kill()


@pytest.mark.timeout(1200)
def test_the_suites_run_on_a_node_without_a_checkout(bare: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    environ = {name: value for name, value in os.environ.items() if name != "VLLM_HARNESS_RAY_SHIP"}
    command = [sys.executable, "-m", "vllm_harness.cli.main", "run", "--model", "qwen3", "--lane", "scripted"]
    ran = subprocess.run(
        [
            *command,
            "--vllm",
            "0.32.0",
            "--report",
            str(folder),
            "--ray",
            bare,
            "--",
            "-k",
            "test_responses_basics",
        ],
        env=environ,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    cases = read_run(folder).of(Outcome.PASSED)
    assert len(cases) >= 8
    assert all(case.node for case in cases)
    wait_for(lambda: not servers())
