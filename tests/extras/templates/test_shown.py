"""What vLLM shows a model, with its vendor's template on a real server, and how its turns come back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apis import APIS, PATHS
from tests.prompts import WEATHER, Step, request_of
from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._environments import assets
from vllm_harness._scripted.book import Raw, ScriptBook
from vllm_harness._scripted.dialects import find_dialect
from vllm_harness._scripted.families import Family, entry_of, load_families
from vllm_harness._server.remote import RemoteServer
from vllm_harness.extras.templates.chat_template import ChatTemplate
from vllm_harness.extras.templates.comparison import shapes_of
from vllm_harness.extras.templates.conversations import TOOL, USER, plain, what_follows
from vllm_harness.extras.templates.deviations import deviation
from vllm_harness.extras.templates.growth import growth_of
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
ANSWERED_OTHERWISE = {
    # minicpm5-drops-text-beside-a-call-unstreamed: what a client sends back lacks the text
    "minicpm5": {"text, call"},
    # the line ends of an empty block come as reasoning, so that the history shows the block as it was said
    "poolside_v1": {"text", "call", "text, call", "calls"},
}
"""The shapes of turns that break, or are kept, since vLLM's answer is not the turn that the model meant."""
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


def served(name: str) -> tuple[ModelEntry, ChatTemplate]:
    """The entry of a family with its template, and the template; skips the test if the asset is missing."""
    family, pair = load_families()[name], load_pairs()[load_families()[name].dialect]
    asset, _, file = pair.template.partition("/")
    fetched = assets.cached(asset)
    if fetched is None:
        pytest.skip(f"needs an asset: vllm-harness env assets fetch {asset}")
    path = fetched.folder / file
    pair = pair.model_copy(update={"variables": {**pair.variables, "bos_token": ""}})  # as the stand-in's is
    entry = entry_of(family)
    more = {"chat_template": str(path), "args": (*entry.args, "--enable-scale-out")}
    return entry.model_copy(update=more), template_of(pair, find_dialect(family.dialect), path)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_shown_and_answers_as_its_template_says(name: str) -> None:
    entry, template = served(name)
    family = load_families()[name]
    with RemoteServer(entry, lane="scripted") as server:
        for api in APIS:
            request = {**request_of(api, STEP), **family.request}
            text = prompt(server, PATHS[api], request)
            assert deviation(template, messages(), TOOLS, text) == DEVIATIONS.get(name), api
        kept = tuple(
            shape for shape in shapes_of(find_dialect(family.dialect)) if grows(server, family, shape)
        )
    expected = set(growth_of(name, find_dialect(family.dialect), template).kept)
    assert set(kept) == expected ^ ANSWERED_OTHERWISE.get(name, set())


def grows(server: RemoteServer, family: Family, shape: str) -> bool:
    """Whether a turn that a client sends back stands in the next prompt as the model said it."""
    meaning = plain(shape).meaning
    raw = find_dialect(family.dialect).render(meaning)
    request: dict[str, Any] = {"messages": [USER], "tools": [TOOL], **family.request}
    before = prompt(server, PATHS["chat"], request)
    book = ScriptBook(server.endpoint, server.entry)
    book.script(Raw(raw))
    answer = book.endpoint.post(PATHS["chat"], json={"model": server.model, **request}).json()
    book.verify()
    book.close()
    said = answer["choices"][0]["message"]
    turn = {key: said[key] for key in ("role", "content", "reasoning", "tool_calls") if said.get(key)}
    outputs = what_follows(meaning)
    for output, call in zip(outputs, said.get("tool_calls") or (), strict=False):
        output["tool_call_id"] = call["id"]
    after = prompt(server, PATHS["chat"], {**request, "messages": [USER, turn, *outputs]})
    return after.startswith(before + raw)


def prompt(server: RemoteServer, path: str, request: dict[str, Any]) -> str:
    """The text of the prompt that an API makes of a conversation, without generating."""
    answer = server.endpoint.post(f"{path}/render", json={"model": server.model, **request})
    assert answer.status_code == 200, f"{path}: {answer.text[:300]}"
    body = {"model": server.model, "tokens": answer.json()["token_ids"]}
    return str(server.endpoint.post("/detokenize", json=body).json()["prompt"])
