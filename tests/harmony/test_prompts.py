"""Compares each API's prompts for `cases/prompts.yaml` on gpt-oss with openai-harmony's prompts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apis import Api
from tests.harmony.conversation import prompts_of
from tests.own_server import OwnServer
from tests.prompts import Conversation, Prompts, covered, known_prompts, of_entry, of_render_routes
from vllm_harness._server.remote import RemoteServer

pytestmark = [
    pytest.mark.vllm_harmony,
    pytest.mark.vllm_scripted,
    pytest.mark.vllm_needs("responses", "chat", "messages"),
]


def prompts(server: RemoteServer, harmony: Any) -> Prompts:
    """Compares a server's prompts with the prompts that openai-harmony renders."""
    return Prompts(server, lambda conversation: prompts_of(harmony, conversation))


@covered()
def test_prompts_are_those_of_harmony(vllm_server: RemoteServer, harmony: Any) -> None:
    prompts(vllm_server, harmony).check(of_entry(vllm_server))


@covered()
def test_render_routes_return_the_same_prompts(own_server: OwnServer, harmony: Any) -> None:
    server = own_server(["--enable-scale-out"])
    prompts(server, harmony).check_render_routes(of_render_routes(server))


@pytest.mark.parametrize(("api", "row"), known_prompts("harmony"))
def test_known_defects_of_prompts(
    api: Api, row: Conversation, vllm_server: RemoteServer, harmony: Any
) -> None:
    prompts(vllm_server, harmony).check([(api, row)])


@pytest.mark.parametrize(("api", "row"), known_prompts("harmony", "known_of_route"))
def test_known_defects_of_render_routes(
    api: Api, row: Conversation, own_server: OwnServer, harmony: Any
) -> None:
    prompts(own_server(["--enable-scale-out"]), harmony).check_render_routes([(api, row)])


@pytest.mark.covers("vllm-45342")
def test_instructions_in_the_system_message(own_server: OwnServer, harmony: Any) -> None:
    """With a vLLM environment variable, the instructions follow the model's identity."""
    server = own_server(env={"VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS": "1"})
    named = ("instructions", "instructions and tools", "a system message", "a system message and tools")
    asked = [(api, row) for api, row in of_entry(server) if row.id in named]
    assert len({row.id for _, row in asked}) == len(named)
    Prompts(server, lambda row: prompts_of(harmony, row, switched=True)).check(asked)
