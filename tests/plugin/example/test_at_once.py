"""Tests that run in forks, one of which dies, or in the main process; each records its process."""

import os
import signal
import time
import warnings

import pytest


@pytest.fixture(autouse=True)
def _process(record_property):
    record_property("process", os.getpid())


@pytest.fixture(scope="module")
def process_of_module():
    return os.getpid()


@pytest.mark.parametrize("number", range(60))
def test_answer(number, vllm_server, openai_client, script, process_of_module, tmp_path_factory):
    assert process_of_module == os.getpid()
    script(f"The number is {number}.")
    response = openai_client.responses.create(model=vllm_server.model, input="Which number?", temperature=0)
    assert response.output_text.strip() == f"The number is {number}."
    if number:  # the first test runs before any fork exists
        (tmp_path_factory.getbasetemp() / f"of {os.getpid()}").touch()


def test_failing(vllm_server, script):
    script("never asked for")


def test_warning(vllm_server):
    warnings.warn("of a fork", UserWarning, stacklevel=1)
    print("printed by a fork")


def test_killing_its_process(vllm_server):
    os.kill(os.getpid(), signal.SIGKILL)


def test_after_the_kill(vllm_server):
    assert vllm_server.alive()


@pytest.mark.vllm_alone
def test_alone(vllm_server, tmp_path_factory):
    time.sleep(0.5)  # long enough for forks to start
    assert vllm_server.alive()
    assert not list(tmp_path_factory.getbasetemp().glob("of *"))
