"""What cannot be launched is told before anything is fetched, with what can."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from vllm_harness.configuration.model_entries import load_models
from vllm_harness.environments.spec import Environment
from vllm_harness.errors import UsageError
from vllm_harness.server.launch import plan_launch

CPU = Environment("installed", Path(sys.executable), "3", "0.32.0", "cpu", None)


def test_an_entry_for_cuda_that_has_a_stand_in_is_served_scripted() -> None:
    with pytest.raises(UsageError, match="'smolvlm-256m' does not run live on cpu") as raised:
        plan_launch(load_models().get("smolvlm-256m"), CPU, lane="live")
    assert raised.value.hint == "use the scripted lane"
