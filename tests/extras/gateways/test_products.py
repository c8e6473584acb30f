"""In three gateway products, their known defects are found, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.clients.environments import NotToBeHadError
from tests.extras.gateways.products import products, pytest_on, running
from vllm_harness._defects.registry import load_defects
from vllm_harness._exchange.server import VllmServer
from vllm_harness._testing.skips import skip
from vllm_harness.cli.main import app

pytestmark = [pytest.mark.vllm_scripted, pytest.mark.vllm_model("qwen3"), pytest.mark.vllm_slow]
PRODUCTS = products()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PRODUCTS)
def test_exactly_the_known_defects(
    name: str, vllm_server: VllmServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    product, direct = PRODUCTS[name], vllm_server.endpoint.base_url
    try:
        with running(product, direct, tmp_path) as gateway:
            monkeypatch.setenv("GATEWAY_KEY", gateway.key)
            words = ["check", gateway.url, "--server-url", direct, "--model", vllm_server.entry.name]
            words += [word for header in gateway.headers for word in ("--header", header)]
            words += ["--api-key-env", "GATEWAY_KEY", "--product", product.product, "--json"]
            words += ["--output", str(tmp_path / "run")]
            result = CliRunner().invoke(app, ["gateway", *words])
    except NotToBeHadError as error:
        skip("client-missing", str(error))
    differences = json.loads(result.stdout)["differences"]
    unknown = [each for each in differences if each["severity"] != "info" and not each["known"]]
    assert not unknown, json.dumps(unknown, indent=1)
    entries = {defect.id for defect in load_defects().values() if defect.product == name}
    assert {each["known"] for each in differences} - {""} == entries


SUITE = '''
"""The checks of the plugin over each API."""


def test_chat(vllm_server, openai_client, script, check_stream):
    script("The capital of France is Paris.")
    request = {"model": vllm_server.model, "messages": [{"role": "user", "content": "What is it?"}]}
    usage = {"include_usage": True}
    check_stream(openai_client.chat.completions.create(**request, stream=True, stream_options=usage))


def test_responses(vllm_server, openai_client, script, check_stream, check_body, check_same):
    script("The capital of France is Paris.", times=2)
    request = {"model": vllm_server.model, "input": "What is it?"}
    events = list(openai_client.responses.create(**request, stream=True))
    body = openai_client.responses.create(**request)
    check_stream(events)
    check_body(body)
    check_same(events, body)
    assert body.output_text.strip() == "The capital of France is Paris."
'''


@pytest.mark.timeout(900)
def test_defects_of_a_gateway_named_to_pytest(vllm_server: VllmServer, tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    direct = vllm_server.endpoint.base_url
    books = (f"--vllm-books-url={direct}", f"--vllm-model={vllm_server.entry.name}")
    try:
        with running(PRODUCTS["litellm"], direct, tmp_path) as gateway:
            unnamed = pytest_on(tmp_path, gateway, *books)
            named = pytest_on(tmp_path, gateway, *books, f"--vllm-product={PRODUCTS['litellm'].product}")
    except NotToBeHadError as error:
        skip("client-missing", str(error))
    assert "2 failed in" in unnamed, unnamed
    assert "2 passed in" in named, named
    assert "known deviations of litellm were seen" in named
