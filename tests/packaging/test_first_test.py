"""Runs the first test that `vllm-harness init` writes, in an environment with only the release."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.packaging.conftest import Installation


@pytest.mark.vllm_slow
def test_the_first_test_passes_as_the_command_says(installation: Installation, tmp_path: Path) -> None:
    written = installation.run("vllm-harness", "init", within=tmp_path)
    assert written.returncode == 0, written.stdout
    command, *arguments = shlex.split(written.stdout.rpartition("$ ")[2])
    collected = installation.run(command, "--collect-only", "-q", within=tmp_path)
    assert "test_the_client_gets_the_answer" in collected.stdout
    result = installation.run(command, *arguments, "-q", within=tmp_path)
    assert result.returncode == 0, result.stdout
    assert re.search(r"^1 passed", result.stdout, re.M), result.stdout
