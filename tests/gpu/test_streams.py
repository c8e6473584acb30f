"""Scripted streams on CUDA equal the cassettes in tests/cassettes, which were recorded on CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vllm_harness._cassettes.comparing import compare
from vllm_harness._cassettes.format import Cassette
from vllm_harness._cassettes.reading import read
from vllm_harness._environments.spec import Environment
from vllm_harness._machine.gpus import visible_gpus

pytestmark = (
    pytest.mark.gpu if visible_gpus() else pytest.mark.skip(reason="there is no CUDA device on this machine")
)

VLLM = "0.32.0"
OF_SERVER = "system_fingerprint"  # a hash of vLLM's configuration, which includes the device
ON_CPU = {
    path.name.removesuffix(".yaml.gz"): read(path).cassette
    for path in sorted((Path(__file__).parents[1] / "cassettes").glob("*.yaml.gz"))
}


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, cassette in ON_CPU.items()
        if cassette.recorded.vllm == VLLM and cassette.recorded.lane == "scripted"
    ],
)
def test_streams_are_those_of_cpu(name: str, environment: Environment, tmp_path: Path) -> None:
    if environment.vllm_version != VLLM:
        pytest.skip(f"the cassettes were recorded with vLLM {VLLM}, this is {environment.vllm_version}")
    again = _recorded_again(ON_CPU[name], environment, tmp_path / "cuda.yaml")
    differences = compare(ON_CPU[name], again)
    assert [each for each in differences if not each.place.endswith(OF_SERVER)] == []


def _recorded_again(cassette: Cassette, environment: Environment, output: Path) -> Cassette:
    recorded = cassette.recorded
    api = recorded.transport.removesuffix("-stream")
    flags = ["--transport", api, "--no-stream" if api == recorded.transport else "--stream"]
    server = ["--model", recorded.model, "--lane", "scripted", "--vllm-python", str(environment.python)]
    command = [str(Path(sys.executable).with_name("vllm-harness")), "cassette", "record", recorded.scenario]
    done = subprocess.run(
        [*command, "-o", str(output), *server, *flags], capture_output=True, text=True, timeout=400
    )
    assert output.exists(), done.stdout + done.stderr
    return read(output).cassette
