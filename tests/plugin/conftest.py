"""The example is another project: it runs in pytester only, with the caches of this machine."""

from pathlib import Path

import pytest

from vllm_harness.files.paths import cache_dir, state_dir

collect_ignore = ["example"]
HOME = str(Path.home())
CACHE, STATE = str(cache_dir()), str(state_dir())


@pytest.fixture(autouse=True)
def _same_home(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """pytester gives each test an empty home, for which vLLM would be imported anew."""
    monkeypatch.setenv("HOME", HOME)
    monkeypatch.setenv("VLLM_HARNESS_CACHE", CACHE)
    monkeypatch.setenv("VLLM_HARNESS_STATE", STATE)
