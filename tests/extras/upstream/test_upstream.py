"""Upstream's test files on real servers: what runs, what is skipped and why, and what a wrong answer does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_harness._environments.installer import InstallError
from vllm_harness.extras.upstream.release_tests import fetch

OWN = """
import openai
import pytest
from tests.utils import RemoteOpenAIServer
from vllm.config import ModelConfig

MODEL = "Qwen/Qwen3-0.6B"


@pytest.fixture(scope="module")
def server():
    with RemoteOpenAIServer(MODEL, ["--max-model-len", "2048", "--gpu-memory-utilization", "0.4"]) as server:
        yield server


def test_the_model_is_served_under_its_id(server):
    assert server.get_client().models.list().data[0].id == MODEL


def test_vllm_answers_for_the_stand_in(server):
    assert ModelConfig(model=MODEL).get_vocab_size() == 151936


def test_without_a_rule(server):
    server.get_client().responses.create(model=MODEL, input="How are you?")


def test_image():
    with RemoteOpenAIServer("google/translategemma-4b-it", []):
        pass


def test_fixture_of_the_root_conftest(hf_runner, server):
    pass


def test_unit():
    assert isinstance(ModelConfig, type)
"""


OF_ONE_SERVER = """
import pytest
from tests.utils import RemoteOpenAIServer

MODEL = "Qwen/Qwen3-0.6B"


@pytest.fixture(scope="module")
def server():
    with RemoteOpenAIServer(MODEL, ["--max-model-len", "2048", "--reasoning-parser", "qwen3"]) as server:
        yield server


@pytest.fixture
def client(server):
    return server.get_client()
"""
OF_VLLM_ALONE = """
import fastapi
import vllm


def test_version():
    assert vllm.__version__ and fastapi
"""
LOOKS_AT_THE_ANSWER = """

def test_prompt_logprobs(client):
    messages = [{"role": "user", "content": "Beijing is the capital of which country?"}]
    answer = client.chat.completions.create(model=MODEL, messages=messages)
    assert "China" in answer.choices[0].message.content
"""
WITHOUT_THE_FIRST_TURN = """

def test_previous_response_id(client):
    history = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello John!"}]
    client.responses.create(model=MODEL, input=[*history, {"role": "user", "content": "What is my name?"}])
"""


def ran(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`pytest -p vllm_harness.extras.upstream` in a folder, after it has ended."""
    settings = ["-p", "no:cacheprovider", "-o", "asyncio_default_fixture_loop_scope=function"]
    command = [sys.executable, "-m", "pytest", "-p", "vllm_harness.extras.upstream", *settings, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def upstream(folder: Path, *arguments: str) -> dict[str, Any]:
    """The results of `pytest -p vllm_harness.extras.upstream` in a folder."""
    answer = ran(folder, *arguments)
    kept = re.search(r"^results: (.+)$", answer.stdout, re.MULTILINE)
    assert kept, answer.stdout + answer.stderr
    results: dict[str, Any] = json.loads(Path(kept[1]).read_text())
    return results


def checkout(folder: Path, file: str, text: str) -> None:
    """Writes a test file where upstream has one of this name, whose book is the package's."""
    path = folder / file
    path.parent.mkdir(parents=True)
    for package in (path.parent, *path.parent.relative_to(folder).parents):
        (folder / package / "__init__.py").touch()
    (folder / "__init__.py").unlink()
    path.write_text(text)


OWN_FILE, UNITS, STATEFUL = (
    "tests/test_own.py",
    "tests/test_own_units.py",
    "tests/entrypoints/openai/responses/test_stateful.py",
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of one run of three files of a checkout, which are named."""
    folder = tmp_path_factory.mktemp("checkout")
    checkout(folder, STATEFUL, OF_ONE_SERVER + WITHOUT_THE_FIRST_TURN)
    (folder / "tests" / "conftest.py").write_text(
        "import torch.cuda\nraise AssertionError('the root conftest was loaded')\n"
    )
    (folder / OWN_FILE).write_text(OWN)
    (folder / UNITS).write_text(OF_VLLM_ALONE)
    return upstream(folder, OWN_FILE, UNITS, STATEFUL)


@pytest.mark.drawn("upstream's files", 2)
def test_a_checkouts_file_runs_and_each_reason_is_named(results: dict[str, Any]) -> None:
    found = results["files"][OWN_FILE]["tests"]
    assert {name: result["outcome"] for name, result in found.items()} == {
        "test_the_model_is_served_under_its_id": "passed",
        "test_vllm_answers_for_the_stand_in": "passed",
        "test_without_a_rule": "failed",
        "test_image": "skipped",
        "test_fixture_of_the_root_conftest": "skipped",
        "test_unit": "passed",
    }
    assert "no script matches this request" in found["test_without_a_rule"]["why"]
    assert found["test_without_a_rule"]["unscripted"][0].lstrip().startswith("test_without_a_rule:")
    assert "an image model" in found["test_image"]["why"]
    assert "hf_runner" in found["test_fixture_of_the_root_conftest"]["why"]
    assert not found["test_unit"]["server"]
    assert list(results["dropped"]) == ["--gpu-memory-utilization"]
    assert results["servers"] == 2


@pytest.mark.drawn("upstream's files", 2)
def test_a_named_file_without_a_server_runs_where_its_imports_are(results: dict[str, Any]) -> None:
    (result,) = results["files"][UNITS]["tests"].values()
    assert (result["outcome"], result["server"]) == ("passed", False)


@pytest.mark.drawn("upstream's files", 2)
def test_an_answer_that_rests_on_an_earlier_turn_needs_it_in_the_prompt(results: dict[str, Any]) -> None:
    result = results["files"][STATEFUL]["tests"]["test_previous_response_id"]
    assert result["outcome"] == "failed"
    assert "lacks 'my name is John'" in result["why"]
    assert "lacks 'Hello John!'" not in result["why"]


@pytest.mark.drawn("upstream's files", 2)
def test_a_book_that_wrongly_says_that_any_answer_passes_fails_the_run(tmp_path: Path) -> None:
    file = "tests/entrypoints/openai/chat_completion/test_chat_echo.py"
    checkout(tmp_path, file, OF_ONE_SERVER + LOOKS_AT_THE_ANSWER)
    answer = ran(tmp_path, file, "--upstream-wrong-answers=other")
    assert "1 passed" in answer.stdout
    assert f"outdated: {file}::test_prompt_logprobs failed with a wrong answer (other)" in answer.stdout
    assert answer.returncode == pytest.ExitCode.TESTS_FAILED


@pytest.mark.drawn("upstream's files", 2)
def test_a_release_s_file_passes_and_fails_with_a_wrong_answer_that_its_grammar_allows() -> None:
    file = "tests/entrypoints/openai/responses/test_structured_output.py"
    try:
        folder = fetch("0.32.0")
    except InstallError as error:
        pytest.skip(f"needs a package index with vLLM's source distribution: {error.message}")
    results = upstream(folder, file, "--vllm=0.32.0", "--upstream-wrong-answers=other,cut")
    found = results["files"][file]["tests"]
    assert [result["outcome"] for result in found.values()] == ["passed", "passed"]
    assert [result["retries"] for result in found.values()] == [0, 0]
    assert [[*result["wrong"].values()] for result in found.values()] == [["cut"], ["cut"]]
