"""The functions of vLLM that the harness replaces or calls exist in each release."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from vllm_harness._environments import locks, resolve
from vllm_harness._environments.store import MissingEnvironmentError
from vllm_harness._server.fork_server import FORKING
from vllm_harness._server.launch import IN_SERVER

GRAFT = "0.33.0@0.32.0"
RELEASES = [lock.version for lock in locks.locks() if lock.device == "cpu"]
MISFITS, CHUNKS = (Path(__file__).with_name(name) for name in ("misfits.py", "chunks.py"))
LOST = """
import vllm_harness_patches as patches

patches.PATCHES = (
    patches.Patch(place="vllm.utils.system_utils:was_renamed", make=patches._sleep),
    patches.Patch(place="vllm.utils.system_utils:was_removed", make=patches._fork, needed=True),
)
patches.apply_patches()
"""


def run(spec: str | None, code: str, modules: Path = FORKING) -> subprocess.CompletedProcess[str]:
    """Runs Python code in an existing environment, with the modules of a folder on the path."""
    try:
        environment = resolve(spec, "cpu" if spec else None)
    except MissingEnvironmentError as error:
        pytest.skip(str(error))
    return environment.run("-c", code, pythonpath=[modules], limit_s=300)


@pytest.mark.parametrize(
    "spec", [None, *(pytest.param(spec, marks=pytest.mark.vllm_slow) for spec in [GRAFT, *RELEASES])]
)
def test_patches_fit(spec: str | None) -> None:
    """Each replacement has as many parameters as the original, and uses only attributes that exist."""
    answer = run(spec, MISFITS.read_text())
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout.splitlines()[-1]) == {}


def test_a_patch_that_does_not_fit_is_named() -> None:
    """The fork server exits if a required patch does not fit."""
    answer = run(None, LOST)
    assert answer.returncode == 1
    assert "vllm.utils.system_utils:was_renamed" in answer.stdout
    assert "vllm.utils.system_utils:was_removed" in answer.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "spec", [None, *(pytest.param(spec, marks=pytest.mark.vllm_slow) for spec in [GRAFT, *RELEASES])]
)
def test_deliveries_fit(spec: str | None) -> None:
    """The collector of each release delivers its own outputs in the chunks of a delivery."""
    answer = run(spec, CHUNKS.read_text(), IN_SERVER)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout.splitlines()[-1]) == [["ab", [0, 1]], ["cd", [2, 3]], ["e", [4]]]
