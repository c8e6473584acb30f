"""On a machine with a GPU, the fork server imports vLLM without using the GPU."""

from __future__ import annotations

import psutil
import pytest

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._environments.spec import Environment
from vllm_harness._machine.gpus import visible_gpus
from vllm_harness._server import fork_server
from vllm_harness._server.launch import plan_launch

pytestmark = (
    pytest.mark.gpu if visible_gpus() else pytest.mark.skip(reason="there is no CUDA device on this machine")
)


def test_template_does_not_touch_the_gpu(environment: Environment) -> None:
    """The template must not have a CUDA context, since that would not survive a fork."""
    launch = plan_launch(load_models().get("qwen3"), environment, lane="scripted")
    fork_server.template(launch, launch.environ(), lambda _: None)
    templates = {info.pid for info in fork_server.templates()}
    below = {child.pid for pid in templates for child in psutil.Process(pid).children(recursive=True)}
    holders = {process.pid for gpu in visible_gpus() for process in gpu.processes}
    assert templates
    assert not holders & (templates | below)
