"""The prompts that each API makes of `cases/prompts.yaml`, against the model's own chat template."""

from __future__ import annotations

from functools import partial

import pytest

from tests.apis import Api
from tests.own_server import OwnServer
from tests.prompts import Conversation, Prompts, covered, known_prompts, of_entry, of_render_routes
from tests.standard.conversation import prompt_ids
from vllm_harness.server.remote import RemoteServer

pytestmark = [
    pytest.mark.vllm_standard,
    pytest.mark.vllm_scripted,
    pytest.mark.vllm_needs("responses", "chat", "messages"),
]

# each prompt that Responses make for llama3.1 begins twice (vllm-38187), which one test shows
QWEN3 = pytest.mark.vllm_model("qwen3")


def prompts(server: RemoteServer) -> Prompts:
    """Compares with the template's text, as the server's tokenizer writes it."""
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
def test_render_routes_give_the_same(own_server: OwnServer) -> None:
    server = own_server(["--enable-scale-out"])
    prompts(server).check_render_routes(of_render_routes(server))


@QWEN3
@pytest.mark.covers("vllm-34792")
def test_debug_logging_leaves_the_calls(own_server: OwnServer) -> None:
    """The log's copy of a request must not use up what the prompt is made of."""
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
