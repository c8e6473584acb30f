"""Sampling parameters: what the engine is told of those that a request has, and of those that it leaves out.

A script is said whatever they are, so that nothing else tells whether they have arrived.
"""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from tests.apis import PATHS, Api, question
from tests.case_files import cases
from vllm_harness.testing.fixtures import ScriptWriter
from vllm_harness.testing.session import Server

pytestmark = pytest.mark.vllm_scripted


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("case", cases("sampling"))
def test_engine_is_told(
    case: dict[str, Any], stream: bool, vllm_server: Server, http: httpx.Client, script: ScriptWriter
) -> None:
    api, renamed = case["api"], case.get("renamed", {})
    script("Rain.", name="rain", keep_prompt=True, expect=case.get("expect", "done"))
    request = {"model": vllm_server.model, **question(api), **case["request"], **case.get("more", {})}
    answer = http.post(PATHS[api], json={**request, "stream": stream})
    assert answer.status_code == 200, answer.text
    (told,) = script.sampling("rain")
    sent = {renamed.get(name, name): value for name, value in request.items() if value is not None}
    expected = {**{name: value for name, value in sent.items() if name in told}, **case["engine"]}
    stops = set(expected.pop("stop_token_ids", ()))
    assert {name: told[name] for name in expected} == expected
    assert stops <= set(told["stop_token_ids"]), "the model's own end stands beside them"
    assert len(told["stop_token_ids"]) == len(set(told["stop_token_ids"]))


@pytest.mark.covers("VC-037", "LS-012")
@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_model_may_be_left_out(
    api: Api, stream: bool, vllm_server: Server, http: httpx.Client, script: ScriptWriter
) -> None:
    """A server has one, and says it."""
    script("Rain.")
    answer = http.post(PATHS[api], json={**question(api), "stream": stream})
    assert answer.status_code == 200, answer.text
    assert re.search(f'"model": ?"{vllm_server.model}"', answer.text)


@pytest.mark.covers("VC-025", "LS-010")
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_answer_may_fill_the_context(
    api: str, vllm_server: Server, http: httpx.Client, script: ScriptWriter
) -> None:
    """Where the request has no limit; one beyond the context is cut to it."""
    script("Rain.", name="rain", times=2, keep_prompt=True)
    context = http.get("/v1/models").json()["data"][0]["max_model_len"]
    for more in ({}, {"max_output_tokens": context} if api == "responses" else {}):
        answer = http.post(PATHS[api], json={"model": vllm_server.model, **question(api), **more})  # type: ignore[index]
        assert answer.status_code == 200, answer.text
    for told, prompt in zip(script.sampling("rain"), script.prompts("rain"), strict=True):
        assert told["max_tokens"] + len(prompt) == context
