"""Measures servers on a GPU: start time, speed, freed memory, and leases."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from vllm_harness._configuration.model_entries import ModelEntry, load_models
from vllm_harness._environments.spec import Environment
from vllm_harness._machine.gpus import gpus, visible_gpus
from vllm_harness._server.leases.gpus import lease_gpus
from vllm_harness._server.leases.waiting import WaitCannotEnd
from vllm_harness._server.remote import RemoteServer

pytestmark = (
    pytest.mark.gpu if visible_gpus() else pytest.mark.skip(reason="there is no CUDA device on this machine")
)

Figure = Callable[[str, str, float], None]
WORDS = " ".join(f"word{number}" for number in range(120))
OWNER = """
import sys
from vllm_harness._server.remote import RemoteServer
with RemoteServer("qwen3", lane="scripted", vllm=sys.argv[1], args=sys.argv[2:]):
    print("serving", flush=True)
    sys.stdin.read()
"""

# the shape of gpt-oss-20b with dummy weights in MXFP4, which take as much GPU memory as the real ones
GPT_OSS_20B: dict[str, Any] = {
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 24,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "experts_per_token": 4,
    "num_experts_per_tok": 4,
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [
            *("model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head")
        ],
    },
}


def full_size_gpt_oss() -> ModelEntry:
    """Returns the gpt-oss stand-in with the dimensions of the real model."""
    entry = load_models().get("gpt-oss")
    assert entry.stand_in is not None
    config = {**entry.stand_in.config, **GPT_OSS_20B}
    stand_in = entry.stand_in.model_copy(update={"config": config})
    return entry.model_copy(update={"name": "gpt-oss-20b-shape", "stand_in": stand_in})


CASES: dict[str, tuple[Callable[[], ModelEntry], Any]] = {
    "gpt-oss": (lambda: load_models().get("gpt-oss"), "scripted"),
    "gpt-oss-20b-shape": (full_size_gpt_oss, "scripted"),
    "qwen3": (lambda: load_models().get("qwen3"), "scripted"),
    "llama3.1": (lambda: load_models().get("llama3.1"), "scripted"),
    "smollm2-135m": (lambda: load_models().get("smollm2-135m"), "live"),
}


def _used() -> float:
    return sum(gpu.used_bytes for gpu in gpus()) / 2**30


@pytest.mark.parametrize("case", CASES)
def test_start_speed_and_memory(
    case: str, environment: Environment, server_args: tuple[str, ...], figure: Figure
) -> None:
    make, lane = CASES[case]
    before = _used()
    server = RemoteServer(make(), lane=lane, vllm=environment, args=server_args)
    with server:
        figure(case, "start s", server.startup_seconds)
        figure(case, "GPU GiB", _used() - before)
        figure(case, "tokens/s", _tokens_a_second(server))
        leaving = time.monotonic()
    figure(case, "stop s", time.monotonic() - leaving)
    figure(case, "left GiB", _used() - before)
    assert _used() - before < 0.5


def _tokens_a_second(server: RemoteServer) -> float:
    if server.lane == "scripted":
        server.script(WORDS, times=2)
    rate = 0.0
    for _ in range(2):  # the first round warms up
        start = time.monotonic()
        answer = server.client().responses.create(
            model=server.model, input="Count to a hundred.", max_output_tokens=1024, temperature=0
        )
        assert answer.usage is not None
        rate = answer.usage.output_tokens / (time.monotonic() - start)
    return rate


def test_a_leased_gpu_is_not_shared(environment: Environment, server_args: tuple[str, ...]) -> None:
    with RemoteServer("qwen3", lane="scripted", vllm=environment, args=server_args) as server:
        with pytest.raises(WaitCannotEnd, match=f"leased by pid {os.getpid()}"):
            lease_gpus(len(visible_gpus()), 1, wait_s=0)
        assert server.alive()
    lease_gpus(len(visible_gpus()), 1, wait_s=0).release()


def test_the_gpu_of_a_killed_run_is_leased_once_its_memory_is_back(
    environment: Environment, server_args: tuple[str, ...], figure: Figure
) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, f"installed:{environment.python}", *server_args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    before = _used()
    assert owner.stdout is not None
    assert owner.stdout.readline() == "serving\n"
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    killed = time.monotonic()
    lease = lease_gpus(len(visible_gpus()), 1)
    figure("kill -9", "lease s", time.monotonic() - killed)
    assert _used() - before < 0.5
    lease.release()
