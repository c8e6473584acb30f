"""What vLLM shows a model: with a vendor's template, each API of a real server makes the same prompt."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apis import APIS, PATHS, Api
from tests.prompts import WEATHER, Step, request_of
from vllm_harness._environments import assets
from vllm_harness._scripted.dialects import find_dialect
from vllm_harness._scripted.families import entry_of, load_families
from vllm_harness._server.remote import RemoteServer
from vllm_harness.extras.templates.deviations import deviation
from vllm_harness.extras.templates.pairs import load_pairs, template_of

pytestmark = [pytest.mark.vllm_slow, pytest.mark.timeout(900)]
FAMILIES = (
    "ling3", "nemotron_v3", "qwen3_xml", "minimax_m3", "gemma4", "seed_oss", "glm45", "kimi_k3",
    "poolside_v1", "minicpm5",
)  # fmt: skip
DEVIATIONS = {
    # vLLM gives a template that can read lists of parts nothing else, and gemma4's writes a blank after each
    "gemma4": "texts are given as lists of parts"
}
TOOLS = [{"type": "function", "function": WEATHER}]
STEP = Step(
    tools=True,
    input=(
        ("system", "Be brief."),
        ("user", "Is it warm in Rome?"),
        ("thoughts", "I should look it up."),
        ("call", "1", 'Rome, "the city"'),
        ("output", "1", "31 degrees"),
        ("assistant", "It is hot: 31 degrees."),
        ("user", "And in Paris?"),
        ("thoughts", "I look up Paris."),
        ("call", "2", "Paris"),
        ("output", "2", "18 degrees, é"),
    ),
)


def messages() -> list[dict[str, Any]]:
    """The conversation as vLLM gives it to a template."""

    def called(number: str, city: str, thoughts: str) -> dict[str, Any]:
        function = {"name": WEATHER["name"], "arguments": {"city": city}}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        both = {"reasoning": thoughts, "reasoning_content": thoughts}
        return {"role": "assistant", "content": "", "tool_calls": [call], **both}

    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Is it warm in Rome?"},
        called("1", 'Rome, "the city"', "I should look it up."),
        {"role": "tool", "tool_call_id": "call_1", "content": "31 degrees"},
        {"role": "assistant", "content": "It is hot: 31 degrees."},
        {"role": "user", "content": "And in Paris?"},
        called("2", "Paris", "I look up Paris."),
        {"role": "tool", "tool_call_id": "call_2", "content": "18 degrees, é"},
    ]


@pytest.mark.parametrize("name", FAMILIES)
def test_each_api_shows_the_conversation_as_the_template_does(name: str) -> None:
    family, pair = load_families()[name], load_pairs()[load_families()[name].dialect]
    asset, _, file = pair.template.partition("/")
    fetched = assets.cached(asset)
    if fetched is None:
        pytest.skip(f"needs an asset: vllm-harness env assets fetch {asset}")
    path = fetched.folder / file
    pair = pair.model_copy(update={"variables": {**pair.variables, "bos_token": ""}})  # as the stand-in's is
    template = template_of(pair, find_dialect(family.dialect), path)
    entry = entry_of(family)
    more = {"chat_template": str(path), "args": (*entry.args, "--enable-scale-out")}
    entry = entry.model_copy(update=more)
    with RemoteServer(entry, lane="scripted") as server:
        prompts = {api: prompt(server, api, family.request) for api in APIS}
    found = {api: deviation(template, messages(), TOOLS, text) for api, text in prompts.items()}
    assert found == dict.fromkeys(APIS, DEVIATIONS.get(name))


def prompt(server: RemoteServer, api: Api, more: dict[str, Any]) -> str:
    """The text of the prompt that an API makes of the conversation, without generating."""
    request = {"model": server.model, **request_of(api, STEP), **more}
    answer = server.endpoint.post(f"{PATHS[api]}/render", json=request)
    assert answer.status_code == 200, f"{api}: {answer.text[:300]}"
    tokens = answer.json()["token_ids"]
    body = {"model": server.model, "tokens": tokens}
    return str(server.endpoint.post("/detokenize", json=body).json()["prompt"])
