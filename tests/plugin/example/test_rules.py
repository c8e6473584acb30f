"""Tests that break the plugin's rules, and some that follow them."""

import pytest

from vllm_harness import skip

PARIS = "The capital of France is Paris."
ASK = {"input": "What is the capital of France?", "temperature": 0}


def test_stream_and_body(vllm_server, openai_client, script, check_stream, check_body, check_same):
    script(PARIS, times=2)
    body = openai_client.responses.create(model=vllm_server.model, **ASK)
    events = list(openai_client.responses.create(model=vllm_server.model, **ASK, stream=True))
    check_body(body)
    check_stream(events)
    check_same(events, body)


def test_stream_and_another_body(vllm_server, openai_client, script, check_same):
    script(PARIS)
    script("The capital of Italy is Rome.")
    body = openai_client.responses.create(model=vllm_server.model, **ASK)
    check_same(openai_client.responses.create(model=vllm_server.model, **ASK, stream=True), body)


def test_a_check_that_is_never_called(vllm_server, check_body):
    assert vllm_server.model


@pytest.mark.vllm_known_defect("vllm-1")
def test_a_defect_that_shows(vllm_server, script):
    script("never asked for, since the defect comes first")
    raise AssertionError("wrong")


@pytest.mark.vllm_known_defect("vllm-1")
def test_a_failure_that_is_not_the_defect(vllm_server):
    raise AssertionError("something else")


@pytest.mark.vllm_known_defect("vllm-2", models=["qwen3"])
def test_a_defect_that_is_fixed(vllm_server):
    assert vllm_server.model


@pytest.mark.vllm_known_defect("vllm-3")
def test_a_defect_of_other_versions(vllm_server):
    assert vllm_server.model


@pytest.mark.xfail
def test_an_expected_failure_without_reference(vllm_server):
    raise AssertionError


def test_an_unexpected_skip(vllm_server):
    skip("no-reason", "the test would rather not")


@pytest.mark.vllm_slow
def test_an_expected_skip(vllm_server):
    raise AssertionError
