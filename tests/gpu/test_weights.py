"""Compares vLLM's results with real weights on a GPU, in each dtype, with transformers on CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._environments.spec import Environment
from vllm_harness._machine.gpus import visible_gpus
from vllm_harness._server.launch import plan_launch
from vllm_harness._terminal.status import quiet
from vllm_harness.extras.weights.check import check, check_prompts

pytestmark = (
    pytest.mark.gpu if visible_gpus() else pytest.mark.skip(reason="there is no CUDA device on this machine")
)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_kernels_compute_what_the_weights_say(
    dtype: str,
    environment: Environment,
    server_args: tuple[str, ...],
    figure: Callable[[str, str, float], None],
) -> None:
    entry = load_models().get("smollm2-135m")
    launch = plan_launch(entry, environment, lane="live", args=server_args)
    (checked,) = check(launch, [dtype], check_prompts(), progress=quiet)
    name = f"smollm2-135m {dtype}"
    figure(name, "start s", checked.startup_s)
    figure(name, "same of 20", checked.comparison.same)
    figure(name, "difference/noise", checked.comparison.difference.mean / checked.comparison.noise.mean)
    assert checked.comparison.verdict != "wrong", checked.comparison
