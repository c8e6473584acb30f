"""Runs the example, a project of its own, only through pytester, with the caches of this machine."""

import sys
from pathlib import Path

import pytest

from vllm_harness._files.paths import cache_dir, state_dir

collect_ignore = ["example"]
HOME = str(Path.home())
CACHE, STATE = str(cache_dir()), str(state_dir())


@pytest.fixture(autouse=True)
def _same_home(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps this machine's home and caches: with pytester's own ones, vLLM would be imported again."""
    arguments = ("env", "-u", "PYTHONPATH", sys.executable, "-m", "pytest")
    monkeypatch.setattr(pytester, "_getpytestargs", lambda: arguments)
    monkeypatch.setenv("HOME", HOME)
    monkeypatch.setenv("VLLM_HARNESS_CACHE", CACHE)
    monkeypatch.setenv("VLLM_HARNESS_STATE", STATE)
