"""Faults are provoked on real vLLM processes; each test starts its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from harness.environments.resolve import resolve
from harness.environments.spec import Environment
from harness.registry import load_registry
from harness.server.launch import Launch, plan_launch


@pytest.fixture(scope="session")
def environment(request: pytest.FixtureRequest) -> Environment:
    """The server environment of this run."""
    option = request.config.option
    spec = f"installed:{option.vllm_python}" if option.vllm_python else option.vllm
    return resolve(spec, device=option.device, create=True)


@pytest.fixture(scope="session")
def launch(environment: Environment) -> Callable[..., Launch]:
    """Plans the qwen3 stand-in, with flags and variables added and fields replaced."""

    def plan(*args: str, env: dict[str, str] | None = None, **replaced: Any) -> Launch:
        entry = load_registry().get("qwen3")
        planned = plan_launch(entry, environment, lane="scripted", args=args, env=env)
        return dataclasses.replace(planned, **replaced)

    return plan
