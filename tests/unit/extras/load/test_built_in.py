"""The load test refuses scenarios that it cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.scenarios.servers import DescribedServer
from tests.unit.scenarios.test_built_in import STORY
from vllm_harness._configuration.model_entries import load_models
from vllm_harness._errors import UsageError
from vllm_harness._runs.folder import RunWriter
from vllm_harness._scenarios.running import transports_of
from vllm_harness.extras.load.driver import Load
from vllm_harness.extras.load.plan import Plan
from vllm_harness.extras.load.recorder import LoadRecorder


def test_a_scenario_with_answers_in_the_background_is_refused(tmp_path: Path) -> None:
    plan = Plan(transports_of(["responses"], (True,)), requests=1)
    server = DescribedServer(load_models().get("gpt-oss"))
    with pytest.raises(UsageError, match="no answers in the background"):
        Load(STORY, server, plan, LoadRecorder(RunWriter(tmp_path), "gpt-oss", 0.0))
