"""Two parallel runs both finish on a machine that has memory for only a few servers."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._environments.spec import Environment
from vllm_harness._server.launch import Launch
from vllm_harness._server.leases.allocation import MARGIN, SPARE_GIB, Start

ROOT = Path(__file__).parents[2]
SUITES = ROOT / "scripts" / "suites"
TESTS = "metrics_count_tokens or plain_answer"
"""A pytest -k expression that selects a test with a separate server, and two tests on the shared server."""
WITHOUT = ("harmony/*", "standard/*", "defects/*", "behaviours/test_[!or]*")
"""Files that do not contain the selected tests."""
LINGER_S = 30
"""How long a fork server lives without a run, so that the waiting run finds the other run's."""
MEASURED_GIB = 1.5
FORK_SERVERS_GIB = 1.9
"""The memory for the fork server with the tokenizers of two models; less than a server needs."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("servers", [3, pytest.param(2, marks=pytest.mark.vllm_slow)])
def test_two_runs_finish(servers: int, environment: Environment, tmp_path: Path) -> None:
    """Runs the two pytest processes of scripts/suites, in which some tests use two servers each."""
    if environment.device != "cpu":
        pytest.skip("needs a CPU environment: on CUDA a server takes a GPU")
    models = [load_models().get(name) for name in ("gpt-oss", "qwen3")]
    starts = [Start(Launch(model, "scripted", environment, "", ()), forked=True) for model in models]
    (tmp_path / "needs.json").write_text(json.dumps({start.key: MEASURED_GIB for start in starts}))
    bound = servers * (MEASURED_GIB * MARGIN + SPARE_GIB) + FORK_SERVERS_GIB
    elsewhere = [f"--ignore-glob={ROOT / 'tests' / files}" for files in WITHOUT]
    state = {"VLLM_HARNESS_STATE": str(tmp_path), "VLLM_HARNESS_LINGER_S": str(LINGER_S)}
    ran = subprocess.run(
        [str(SUITES), "--", "-k", TESTS, *elsewhere, f"--vllm=installed:{environment.python}"],
        env={**os.environ, **state, "VLLM_HARNESS_MEMORY_GIB": f"{bound:g}"},
        capture_output=True,
        text=True,
        check=False,
    )
    print(ran.stdout)
    passed = {model: int(n) for model, n in re.findall(r"^(\S+) \| .*?(\d+) passed", ran.stdout, re.M)}
    assert ran.returncode == 0, ran.stderr
    assert passed.keys() == {"gpt-oss", "qwen3"}
    assert min(passed.values()) > 2
