"""What the fork server replaces and calls in vLLM is in each release as the fork server expects it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vllm_harness.environments import locks, resolve
from vllm_harness.environments.store import MissingEnvironmentError
from vllm_harness.server.fork_server import FORKING

GRAFT = "0.33.0@0.32.0"
RELEASES = [lock.version for lock in locks.locks() if lock.device == "cpu"]
MISFITS = Path(__file__).with_name("misfits.py")


@pytest.mark.parametrize(
    "spec", [None, *(pytest.param(spec, marks=pytest.mark.vllm_slow) for spec in [GRAFT, *RELEASES])]
)
def test_patches_fit(spec: str | None) -> None:
    """A replacement has as many parameters as the original, and what it reads of its object is there."""
    try:
        environment = resolve(spec, "cpu" if spec else None)
    except MissingEnvironmentError as error:
        pytest.skip(str(error))
    answer = environment.run("-c", MISFITS.read_text(), pythonpath=[FORKING], limit_s=300)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout.splitlines()[-1]) == {}
