"""Sampling parameters: the values that reach the engine, for parameters in a request and for omitted ones.

The parameters do not change a scripted answer, so no other test would show whether they have arrived.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.apis import APIS, PATHS, Api, question
from tests.case_files import cases
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.server import VllmServer
from vllm_harness._scripted.book import Raw
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = pytest.mark.vllm_scripted

LIMITS: list[tuple[Api, str]] = [
    ("chat", "max_tokens"),
    ("chat", "max_completion_tokens"),
    ("responses", "max_output_tokens"),
    ("messages", "max_tokens"),
]


@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("case", cases("sampling"))
def test_parameters_reach_the_engine(
    case: dict[str, Any], stream: bool, vllm_server: VllmServer, http: Endpoint, script: ScriptWriter
) -> None:
    api, renamed = case["api"], case.get("renamed", {})
    script("Rain.", name="rain", keep_prompt=True, expect=case.get("expect", "done"))
    request = {"model": vllm_server.model, **question(api), **case["request"], **case.get("more", {})}
    answer = http.post(PATHS[api], json={**request, "stream": stream})
    assert answer.status_code == 200, answer.text
    (parameters,) = script.sampling("rain")
    sent = {renamed.get(name, name): value for name, value in request.items() if value is not None}
    expected = {**{name: value for name, value in sent.items() if name in parameters}, **case["engine"]}
    stops = set(expected.pop("stop_token_ids", ()))
    assert {name: parameters[name] for name in expected} == expected
    assert stops <= set(parameters["stop_token_ids"]), "the client's stop tokens are missing"
    assert len(parameters["stop_token_ids"]) == len(set(parameters["stop_token_ids"]))


@pytest.mark.covers("VC-037", "LS-012")
@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_model_may_be_left_out(
    api: Api, stream: bool, vllm_server: VllmServer, http: Endpoint, script: ScriptWriter
) -> None:
    """If the request names no model, the server uses its only model, and names it in the answer."""
    script("Rain.")
    answer = http.post(PATHS[api], json={**question(api), "stream": stream})
    assert answer.status_code == 200, answer.text
    assert re.search(f'"model": ?"{vllm_server.model}"', answer.text)


@pytest.mark.covers("VC-025", "LS-010", "VA-017")
@pytest.mark.parametrize(("api", "limit"), [("chat", None), ("responses", None), *LIMITS])
def test_answer_may_fill_the_context(
    api: Api, limit: str | None, vllm_server: VllmServer, http: Endpoint, script: ScriptWriter
) -> None:
    """Without a limit the answer may fill the context, and a limit of the whole context is lowered to fit."""
    script("Rain.", name="rain", keep_prompt=True)
    context = http.get("/v1/models").json()["data"][0]["max_model_len"]
    more = {limit: context} if limit else {}
    answer = http.post(PATHS[api], json={"model": vllm_server.model, **question(api), **more})
    assert answer.status_code == 200, answer.text
    (parameters,), (prompt,) = script.sampling("rain"), script.prompts("rain")
    assert parameters["max_tokens"] + len(prompt) == context


@pytest.mark.vllm_standard
@pytest.mark.covers("VC-025", "VA-017")
@pytest.mark.parametrize(("api", "limit"), [(api, limit) for api, limit in LIMITS if api != "responses"])
def test_limit_beyond_the_context_is_refused(
    api: Api, limit: str, vllm_server: VllmServer, http: Endpoint
) -> None:
    """A limit that no answer could reach is refused; for gpt-oss (not tested here) the server lowers it."""
    context = http.get("/v1/models").json()["data"][0]["max_model_len"]
    request = {"model": vllm_server.model, **question(api), limit: context + 1}
    answer = http.post(PATHS[api], json=request)
    assert answer.status_code == 400, answer.text
    assert str(context) in answer.json()["error"]["message"]


@pytest.mark.vllm_standard
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VC-035", "LS-010")
@pytest.mark.parametrize("ignored", [True, False], ids=["ignored", "heeded"])
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_end_is_ignored_on_request(
    api: Api, ignored: bool, vllm_server: VllmServer, http: Endpoint, script: ScriptWriter
) -> None:
    """With vLLM's own `ignore_eos`, the model continues after its end token, up to the limit."""
    script(Raw(f"Rain.<|im_end|>{' More rain.' * 8}"), expect="truncated")
    limit = {"max_output_tokens" if api == "responses" else "max_tokens": 12}
    request = {"model": vllm_server.model, **question(api), **limit, "ignore_eos": ignored}
    answer = http.post(PATHS[api], json=request)
    assert answer.status_code == 200, answer.text
    written = answer.json()["usage"]["output_tokens" if api == "responses" else "completion_tokens"]
    assert written == (12 if ignored else 3)


@pytest.mark.covers("VC-025", "LS-032", "VA-017")
@pytest.mark.parametrize("api", APIS)
def test_longest_cache_salt(api: Api, vllm_server: VllmServer, http: Endpoint, script: ScriptWriter) -> None:
    """vLLM's own `cache_salt` may have at most 128 characters, and some characters are not allowed."""
    script("Rain.")
    request = {"model": vllm_server.model, **question(api)}
    answer = http.post(PATHS[api], json={**request, "cache_salt": "s" * 128})
    assert answer.status_code == 200, answer.text
    for refused in ("s" * 129, "a@b", "a/b", "a\\b", "a\0b"):
        answer = http.post(PATHS[api], json={**request, "cache_salt": refused})
        assert answer.status_code == 400, f"{refused!r}: {answer.text}"
        assert "cache_salt" in answer.json()["error"]["message"]
