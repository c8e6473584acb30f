"""Compares each API's prompts for `cases/prompts.yaml` with those of the model's own chat template."""

from __future__ import annotations

from functools import partial

import pytest

from tests.apis import PATHS, Api, Json, question
from tests.own_server import OwnServer
from tests.prompts import Conversation, Prompts, covered, known_prompts, of_entry, of_render_routes
from tests.standard.conversation import prompt_ids
from vllm_harness._server.remote import RemoteServer

pytestmark = [
    pytest.mark.vllm_standard,
    pytest.mark.vllm_scripted,
    pytest.mark.vllm_needs("responses", "chat", "messages"),
]

# Responses prompts for llama3.1 start with two BOS tokens (vllm-38187); see test_prompts_of_responses
QWEN3 = pytest.mark.vllm_model("qwen3")


def prompts(server: RemoteServer) -> Prompts:
    """Compares the server's prompts with the token ids of the template's output."""
    return Prompts(server, partial(prompt_ids, server))


@covered()
def test_prompts_of_chat_and_messages(vllm_server: RemoteServer) -> None:
    prompts(vllm_server).check([(api, row) for api, row in of_entry(vllm_server) if api != "responses"])


@covered()
@pytest.mark.vllm_known_defect("vllm-38187")
def test_prompts_of_responses(vllm_server: RemoteServer) -> None:
    prompts(vllm_server).check([(api, row) for api, row in of_entry(vllm_server) if api == "responses"])


@QWEN3
@covered()
def test_render_routes_return_the_same_prompts(own_server: OwnServer) -> None:
    server = own_server(["--enable-scale-out"])
    prompts(server).check_render_routes(of_render_routes(server))


@QWEN3
@pytest.mark.covers("VC-042", "VR-062")
@pytest.mark.parametrize(
    ("api", "limits"),
    [
        pytest.param("responses", {"max_output_tokens": 9}, id="responses"),
        pytest.param("chat", {"max_tokens": 9}, id="chat"),
        pytest.param("chat", {"max_completion_tokens": 9}, id="chat, new name"),
        pytest.param("chat", {"max_tokens": 33, "max_completion_tokens": 9}, id="chat, both names"),
        pytest.param("messages", {"max_tokens": 9}, id="messages"),
    ],
)
def test_render_routes_return_sampling_limits(api: Api, limits: Json, own_server: OwnServer) -> None:
    """The render routes return the sampling limits and the template arguments that a parser needs."""
    server = own_server(["--enable-scale-out"])
    asked: Json = {
        **question(api),
        **limits,
        "temperature": 0.5,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    answer = server.endpoint.post(f"{PATHS[api]}/render", json={"model": server.model, **asked}, timeout=60)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert told["model"] == server.model
    assert (told["sampling_params"]["max_tokens"], told["sampling_params"]["temperature"]) == (9, 0.5)
    assert told["reasoning_parser_kwargs"]["chat_template_kwargs"]["enable_thinking"] is False


@QWEN3
@pytest.mark.covers("VR-021")
def test_render_route_rejects_previous_response_id(own_server: OwnServer) -> None:
    server = own_server(["--enable-scale-out"])
    request = {"model": server.model, "input": "Hi", "previous_response_id": "resp_1"}
    answer = server.endpoint.post("/v1/responses/render", json=request, timeout=60)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "previous_response_id"


@QWEN3
@pytest.mark.covers("vllm-34792")
def test_debug_logging_does_not_consume_the_calls(own_server: OwnServer) -> None:
    """With debug logging, making the logged copy of a request must not consume the request's iterators."""
    server = own_server(env={"VLLM_LOGGING_LEVEL": "DEBUG"})
    asked = [(api, row) for api, row in of_entry(server) if any(turn[0] == "call" for turn in row.turns)]
    assert {api for api, _ in asked} == {"responses", "chat", "messages"}
    prompts(server).check(asked)
    assert server.log_path is not None
    assert " DEBUG " in server.log_path.read_text(errors="replace")


@QWEN3
@pytest.mark.parametrize(("api", "row"), known_prompts("standard"))
def test_known_defects_of_prompts(api: Api, row: Conversation, vllm_server: RemoteServer) -> None:
    prompts(vllm_server).check([(api, row)])
