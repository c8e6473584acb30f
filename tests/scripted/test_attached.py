"""The attached lane with a gateway: scripts go directly to the scripted server, clients use the gateway."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tests.scripted.gateway import gateway
from vllm_harness._exchange.endpoint import API_PATHS, EndpointError
from vllm_harness._exchange.server import VllmServer
from vllm_harness._scripted.in_server.vllm_harness_names import BOOK_HEADER
from vllm_harness._server.attached import AttachedServer, check_header

pytestmark = [pytest.mark.vllm_scripted, pytest.mark.vllm_model("qwen3")]

SUITE = """
def test_scripted_answers_pass_through_the_gateway(vllm_server, openai_client, script):
    assert script.exact
    assert vllm_server.vllm_version == "0.1.2"
    script("The capital of France is Paris.")
    answer = openai_client.responses.create(model=vllm_server.model, input="What is it?")
    assert answer.output_text.strip() == "The capital of France is Paris."


def test_an_unused_script_fails(vllm_server, openai_client, script):
    script("unused")


def test_a_wrong_answer_is_not_retried(vllm_server, openai_client, script):
    from vllm_harness._testing.content import expect_content
    script("no")
    answer = openai_client.responses.create(model=vllm_server.model, input="Yes?")
    expect_content(answer.output_text.strip() == "yes", "it says yes")
"""


def test_a_suite_runs_through_a_gateway(vllm_server: VllmServer, tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    with gateway(vllm_server.endpoint.base_url) as address:
        options = {
            "server-url": address,
            "books-url": vllm_server.endpoint.base_url,
            "model": "qwen3",
            "server-version": "0.1.2",
            "api-key-env": "THE_KEY",
        }
        given = [f"--vllm-{name}={value}" for name, value in options.items()]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *given, str(tmp_path)]
        environ = {**os.environ, "THE_KEY": vllm_server.endpoint.api_key}
        run = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert "1 failed, 2 passed, 1 error in" in run.stdout, run.stdout  # and nothing was retried
    assert "script 'script 1' was never used" in run.stdout
    assert "it says yes" in run.stdout


def test_a_gateway_that_drops_the_header_is_detected_at_the_start(vllm_server: VllmServer) -> None:
    direct = vllm_server.endpoint
    with gateway(direct.base_url, dropped=frozenset({BOOK_HEADER})) as address:
        server = AttachedServer(replace(direct, base_url=address), vllm_server.entry, books=direct)
        with pytest.raises(EndpointError) as caught:
            check_header(server, API_PATHS)
    assert "responses (HTTP 400), chat (HTTP 400), messages (HTTP 400)" in caught.value.message
    assert "forward_client_headers_to_llm_api" in caught.value.hint
    with gateway(direct.base_url) as address:
        server = AttachedServer(replace(direct, base_url=address), vllm_server.entry, books=direct)
        check_header(server, API_PATHS)
        assert server.vllm_version == direct.vllm_version()


def test_books_need_an_attached_server(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-q", "--vllm-books-url=http://127.0.0.1:9", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode != 0
    assert "add --vllm-server-url" in run.stdout + run.stderr
