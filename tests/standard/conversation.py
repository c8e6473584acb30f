"""Renders conversations with a model's chat template as transformers does, outside the server."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from jinja2 import Template
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tests.prompts import Conversation, chat_messages
from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._environments import assets
from vllm_harness._server.remote import RemoteServer


def prompt_ids(server: RemoteServer, conversation: Conversation) -> tuple[list[int]]:
    """Returns the token ids of a conversation's prompt."""
    return (token_ids(server, rendered(server.entry, conversation)),)


def token_ids(server: RemoteServer, text: str) -> list[int]:
    """Returns the token ids of a text according to the server's tokenizer."""
    body = {"model": server.model, "prompt": text, "add_special_tokens": False}
    answer = server.endpoint.post("/tokenize", json=body, timeout=60)
    return [int(token) for token in answer.json()["tokens"]]


def rendered(entry: ModelEntry, conversation: Conversation) -> str:
    """Renders the prompt for all turns, with the instructions, tools and effort of the last request."""
    last = conversation.steps[-1]
    instructions = [{"role": "system", "content": last.instructions}] if last.instructions else []
    return template_of(entry).render(
        messages=[*instructions, *map(_for_template, chat_messages(conversation.turns))],
        tools=[{"type": "function", "function": each} for each in last.functions] or None,
        add_generation_prompt=True,
        bos_token=_configuration(entry).get("bos_token"),
        **({"enable_thinking": False} if last.effort == "none" else {}),
    )


def _for_template(message: dict[str, Any]) -> dict[str, Any]:
    """Converts a message to transformers' documented form: content as a single string, arguments as objects.

    Templates have no developer role, so it becomes system (OpenAI's Model Spec, "Levels of authority").
    """
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "\n".join(part["text"] for part in content)
    more: dict[str, Any] = {}
    if "reasoning" in message:
        more["reasoning_content"] = message["reasoning"]
    if "tool_calls" in message:
        functions = [call["function"] for call in message["tool_calls"]]
        more["tool_calls"] = [
            {"type": "function", "function": {**each, "arguments": json.loads(each["arguments"])}}
            for each in functions
        ]
    role = "system" if message["role"] == "developer" else message["role"]
    return {"role": role, "content": content, **more}


def _configuration(entry: ModelEntry) -> dict[str, Any]:
    assert entry.stand_in is not None
    path = assets.fetch(entry.stand_in.tokenizer) / "tokenizer_config.json"
    return dict(json.loads(path.read_text()))


@cache
def _template_of(text: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(
        value, ensure_ascii=False, indent=indent
    )
    return environment.from_string(text)


def template_of(entry: ModelEntry) -> Template:
    """Returns the chat template of a model entry."""
    path = entry.chat_template_path
    return _template_of(path.read_text() if path else _configuration(entry)["chat_template"])
