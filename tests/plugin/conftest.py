"""The example is another project: it runs in pytester only, with the caches of this machine."""

import pytest

from harness.paths import cache_dir, state_dir

collect_ignore = ["example"]
CACHE, STATE = str(cache_dir()), str(state_dir())


@pytest.fixture(autouse=True)
def _same_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytester gives each test an empty home."""
    monkeypatch.setenv("VLLM_HARNESS_CACHE", CACHE)
    monkeypatch.setenv("VLLM_HARNESS_STATE", STATE)
    return
