"""Tests that forks run, one of which dies, and tests that this process runs; each records its process."""

import os
import signal
import time
import warnings

import pytest


@pytest.fixture(autouse=True)
def _who(record_property):
    record_property("process", os.getpid())


@pytest.fixture(scope="module")
def of_the_module():
    return os.getpid()


@pytest.mark.parametrize("number", range(60))
def test_what_is_said(number, vllm_server, openai_client, script, of_the_module, tmp_path_factory):
    assert of_the_module == os.getpid()
    script(f"The number is {number}.")
    response = openai_client.responses.create(model=vllm_server.model, input="Which number?", temperature=0)
    assert response.output_text.strip() == f"The number is {number}."
    if number:  # the first test runs before the forks start
        (tmp_path_factory.getbasetemp() / f"of {os.getpid()}").touch()


def test_that_fails(vllm_server, script):
    script("never asked for")


def test_that_warns(vllm_server):
    warnings.warn("of a fork", UserWarning, stacklevel=1)
    print("printed by a fork")


def test_that_ends_its_process(vllm_server):
    os.kill(os.getpid(), signal.SIGKILL)


def test_after_it(vllm_server):
    assert vllm_server.alive()


@pytest.mark.vllm_alone
def test_alone(vllm_server, tmp_path_factory):
    time.sleep(0.5)  # enough time for the forks to start
    assert vllm_server.alive()
    assert not list(tmp_path_factory.getbasetemp().glob("of *"))
