"""vLLM's own test files on real servers: which tests run or are skipped, and what wrong answers cause."""

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
    """Runs `pytest -p vllm_harness.extras.upstream` in a folder."""
    settings = ["-p", "no:cacheprovider", "-o", "asyncio_default_fixture_loop_scope=function"]
    command = [sys.executable, "-m", "pytest", "-p", "vllm_harness.extras.upstream", *settings, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def upstream(folder: Path, *arguments: str) -> dict[str, Any]:
    """The test results of `pytest -p vllm_harness.extras.upstream` in a folder."""
    answer = ran(folder, *arguments)
    match = re.search(r"^results: (.+)$", answer.stdout, re.MULTILINE)
    assert match, answer.stdout + answer.stderr
    results: dict[str, Any] = json.loads(Path(match[1]).read_text())
    return results


def checkout(folder: Path, file: str, text: str) -> None:
    """Writes a test file at a path that upstream uses, so that the package's script book for it applies."""
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
    """The test results of one run of three test files, named on the command line, in a checkout."""
    folder = tmp_path_factory.mktemp("checkout")
    checkout(folder, STATEFUL, OF_ONE_SERVER + WITHOUT_THE_FIRST_TURN)
    (folder / "tests" / "conftest.py").write_text(
        "import torch.cuda\nraise AssertionError('the root conftest was loaded')\n"
    )
    (folder / OWN_FILE).write_text(OWN)
    (folder / UNITS).write_text(OF_VLLM_ALONE)
    return upstream(folder, OWN_FILE, UNITS, STATEFUL)


@pytest.mark.drawn("upstream's files", 2)
def test_a_file_of_a_checkout_runs_and_each_skip_has_a_reason(results: dict[str, Any]) -> None:
    tests = results["files"][OWN_FILE]["tests"]
    assert {name: result["outcome"] for name, result in tests.items()} == {
        "test_the_model_is_served_under_its_id": "passed",
        "test_vllm_answers_for_the_stand_in": "passed",
        "test_without_a_rule": "failed",
        "test_image": "skipped",
        "test_fixture_of_the_root_conftest": "skipped",
        "test_unit": "passed",
    }
    assert "no script matches this request" in tests["test_without_a_rule"]["why"]
    assert tests["test_without_a_rule"]["unscripted"][0].lstrip().startswith("test_without_a_rule:")
    assert "an image model" in tests["test_image"]["why"]
    assert "hf_runner" in tests["test_fixture_of_the_root_conftest"]["why"]
    assert not tests["test_unit"]["server"]
    assert list(results["dropped"]) == ["--gpu-memory-utilization"]
    assert results["servers"] == 2


@pytest.mark.drawn("upstream's files", 2)
def test_a_file_without_a_server_runs_in_the_python_of_the_servers(results: dict[str, Any]) -> None:
    (result,) = results["files"][UNITS]["tests"].values()
    assert (result["outcome"], result["server"]) == ("passed", False)


@pytest.mark.drawn("upstream's files", 2)
def test_the_prompt_must_contain_the_texts_of_a_rule(results: dict[str, Any]) -> None:
    result = results["files"][STATEFUL]["tests"]["test_previous_response_id"]
    assert result["outcome"] == "failed"
    assert "lacks 'my name is John'" in result["why"]
    assert "lacks 'Hello John!'" not in result["why"]


@pytest.mark.drawn("upstream's files", 2)
def test_an_outdated_any_answer_entry_fails_the_run(tmp_path: Path) -> None:
    file = "tests/entrypoints/openai/chat_completion/test_chat_echo.py"
    checkout(tmp_path, file, OF_ONE_SERVER + LOOKS_AT_THE_ANSWER)
    answer = ran(tmp_path, file, "--upstream-wrong-answers=other")
    assert "1 passed" in answer.stdout
    assert f"outdated: {file}::test_prompt_logprobs failed with a wrong answer (other)" in answer.stdout
    assert answer.returncode == pytest.ExitCode.TESTS_FAILED


@pytest.mark.drawn("upstream's files", 2)
def test_a_file_of_a_release_fails_with_wrong_answers_that_its_grammar_allows() -> None:
    file = "tests/entrypoints/openai/responses/test_structured_output.py"
    try:
        folder = fetch("0.32.0")
    except InstallError as error:
        pytest.skip(f"needs a package index with vLLM's source distribution: {error.message}")
    results = upstream(folder, file, "--vllm=0.32.0", "--upstream-wrong-answers=other,truncated")
    tests = results["files"][file]["tests"]
    assert [result["outcome"] for result in tests.values()] == ["passed", "passed"]
    assert [result["retries"] for result in tests.values()] == [0, 0]
    assert [[*result["wrong"].values()] for result in tests.values()] == [["truncated"], ["truncated"]]
