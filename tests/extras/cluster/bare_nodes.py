"""Cluster nodes with a separate home folder, Python and Ray, but without the harness."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[3]
INDEX = f"""eval "$('{sys.executable}' -P '{ROOT}/harness/vllm_harness/_environments/pip_settings.py')\""""
"""A shell command that makes uv use this machine's package index."""
MAKE = """
set -euo pipefail
{index}
export UV_PYTHON_DOWNLOADS=never
uv venv --quiet --seed --python '{python}' "$HOME/venv" # Ray installs by the pip of its environment
uv pip install --quiet --python "$HOME/venv/bin/python" 'ray[default]=={ray}'
"""
START = """
set -euo pipefail
{before}
cd "$HOME"
'{ray}' start --num-cpus=2 --memory=4294967296 --object-store-memory=83886080 {arguments}
"""
KEPT = {"RAY_USAGE_STATS_ENABLED": "0"}
KEPT |= {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}


def make_ray(home: Path) -> Path:
    """Installs the same version of Ray in a node's home folder; returns the path of the command `ray`."""
    ray = pytest.importorskip(
        "ray", reason="Ray is not installed; scripts/cluster makes an environment with it"
    )
    script = MAKE.format(python=sys.executable, index=INDEX, ray=ray.__version__)
    environ = {**KEPT, "HOME": str(home), "UV_CACHE_DIR": str(Path.home() / ".cache" / "uv")}
    subprocess.run(["bash", "-c", script], env=environ, check=True)
    return home / "venv" / "bin" / "ray"


@contextmanager
def started(
    ray: Path, environ: Mapping[str, str], arguments: str, *, before: str = "", within: tuple[str, ...] = ()
) -> Iterator[str]:
    """A running node with two CPUs; yields the output of `ray start`.

    Args:
        ray: the path of the command `ray`; at the end, all processes of that installation are killed.
        environ: the environment variables of the node.
        arguments: further arguments of `ray start`.
        before: shell commands to run before the node starts.
        within: the command that runs the shell.
    """
    script = START.format(before=before, ray=ray, arguments=arguments)
    command = [*within, "bash", "-c", script]
    made = subprocess.run(command, env={**KEPT, **environ}, capture_output=True, text=True)
    try:
        assert made.returncode == 0, made.stdout + made.stderr
        yield made.stdout
    finally:
        for process in psutil.process_iter(["exe", "cmdline"]):
            if str(ray.parents[1]) in " ".join(process.info["cmdline"] or ()):
                process.kill()


def address_in(output: str) -> str:
    """The address of a head node, from the output of `ray start`."""
    match = re.search(r"--address='([^']+)'", output)
    assert match, output
    return match[1]
