"""What is known of three gateways is found in them, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.clients.environments import NotToBeHadError
from tests.gateways.products import products, running
from vllm_harness.cli.main import app
from vllm_harness.defects.registry import load_defects
from vllm_harness.testing.session import Server
from vllm_harness.testing.skips import skip

pytestmark = [pytest.mark.vllm_scripted, pytest.mark.vllm_model("qwen3"), pytest.mark.vllm_slow]
PRODUCTS = products()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PRODUCTS)
def test_what_is_known_is_found_and_nothing_else(
    name: str, vllm_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    product, direct = PRODUCTS[name], vllm_server.endpoint.base_url
    try:
        with running(product, direct, tmp_path) as gateway:
            monkeypatch.setenv("GATEWAY_KEY", gateway.key)
            words = ["check", gateway.url, "--server-url", direct, "--model", vllm_server.entry.name]
            words += [word for header in gateway.headers for word in ("--header", header)]
            words += ["--api-key-env", "GATEWAY_KEY", "--product", product.product, "--json"]
            words += ["--into", str(tmp_path / "run")]
            result = CliRunner().invoke(app, ["gateway", *words])
    except NotToBeHadError as error:
        skip("client-missing", str(error))
    found = json.loads(result.stdout)["differences"]
    unknown = [each for each in found if each["severity"] != "info" and not each["known"]]
    assert not unknown, json.dumps(unknown, indent=1)
    entries = {defect.id for defect in load_defects().values() if defect.product == name}
    assert {each["known"] for each in found} - {""} == entries
