"""Fixtures for the release whose serving code the tests change."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness._environments import Environment, resolve
from vllm_harness._environments.store import MissingEnvironmentError

VLLM = "0.32.0"


@pytest.fixture(scope="module")
def release() -> Environment:
    """The environment of the release; the test is skipped if it is not installed."""
    try:
        return resolve(VLLM, "cpu")
    except MissingEnvironmentError:
        pytest.skip(f"needs the environment {VLLM}: `vllm-harness env create {VLLM}`")


@pytest.fixture(scope="module")
def package(release: Environment) -> Path:
    """The folder of the release's `vllm` package."""
    assert release.package is not None
    return release.package
