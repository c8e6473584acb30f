"""The release whose serving code is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness._environments import Environment, resolve
from vllm_harness._environments.store import MissingEnvironmentError

VLLM = "0.32.0"


@pytest.fixture(scope="module")
def release() -> Environment:
    """That release, where it is installed."""
    try:
        return resolve(VLLM, "cpu")
    except MissingEnvironmentError:
        pytest.skip(f"needs the environment {VLLM}: `vllm-harness env create {VLLM}`")


@pytest.fixture(scope="module")
def package(release: Environment) -> Path:
    """The folder of its package."""
    assert release.package is not None
    return release.package
