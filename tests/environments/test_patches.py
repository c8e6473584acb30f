"""The functions of vLLM that the harness replaces or calls exist in each release."""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path
from typing import Any

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


each_release = pytest.mark.parametrize(
    "spec", [None, *(pytest.param(spec, marks=pytest.mark.vllm_slow) for spec in [GRAFT, *RELEASES])]
)


def run(spec: str | None, code: str) -> subprocess.CompletedProcess[str]:
    """Runs Python code in an existing environment, with the modules of servers and the fork server."""
    try:
        environment = resolve(spec, "cpu" if spec else None)
    except MissingEnvironmentError as error:
        pytest.skip(str(error))
    return environment.run("-c", code, pythonpath=[FORKING, IN_SERVER], limit_s=300)


@functools.cache
def misfits_and_chunks(spec: str | None) -> list[Any]:
    """What the two programs print, in one process: it spends most of its time on importing vLLM."""
    answer = run(spec, MISFITS.read_text() + CHUNKS.read_text())
    assert answer.returncode == 0, answer.stderr
    return [json.loads(line) for line in answer.stdout.splitlines()[-2:]]


@each_release
def test_patches_fit(spec: str | None) -> None:
    """Each replacement has as many parameters as the original, and uses only attributes that exist."""
    assert misfits_and_chunks(spec)[0] == {}


def test_a_patch_that_does_not_fit_is_named() -> None:
    """The fork server exits if a required patch does not fit."""
    answer = run(None, LOST)
    assert answer.returncode == 1
    assert "vllm.utils.system_utils:was_renamed" in answer.stdout
    assert "vllm.utils.system_utils:was_removed" in answer.stderr.splitlines()[-1]


@each_release
def test_deliveries_fit(spec: str | None) -> None:
    """The collector of each release delivers its own outputs in the chunks of a delivery."""
    assert misfits_and_chunks(spec)[1] == [["ab", [0, 1]], ["cd", [2, 3]], ["e", [4]]]
