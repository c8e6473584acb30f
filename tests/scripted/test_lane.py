"""The scripted lane: the model generates exactly what is scripted, and problems are reported by name."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from packaging.version import Version
from pydantic import BaseModel

from tests.behaviours.tools import CHAT_TOOL, RESPONSES_TOOL
from vllm_harness._exchange.server import VllmServer
from vllm_harness._scripted.book import Expectation, Raw, ScriptBook, ScriptError, When
from vllm_harness._scripted.meaning import Meaning, Text, ToolCall
from vllm_harness._server.remote import RemoteServer
from vllm_harness._testing.fixtures import ScriptWriter
from vllm_harness._testing.skips import NOT_SERVED, OTHER_DEVICE, skip

pytestmark = pytest.mark.vllm_scripted

AT_ONCE = 40


class City(BaseModel):
    """A structured answer."""

    name: str
    population: int


def lane(server: VllmServer) -> RemoteServer:
    """Returns the server as a server that the harness has started."""
    assert isinstance(server, RemoteServer)
    return server


def ask(client: OpenAI, model: str, text: str, **more: Any) -> str:
    """Returns the answer to a message over Chat Completions, which every front end serves."""
    chat = client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}], **more)
    return (chat.choices[0].message.content or "").strip()


def words(number: int, count: int = 12) -> str:
    """Returns a text in which each word contains the number."""
    return " ".join(f"word{number}x{i}" for i in range(count))


def test_request_without_script_is_refused(vllm_server: VllmServer, openai_client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(openai_client, vllm_server.model, "What now?")
    assert "no script matches this request" in caught.value.message
    assert "What now?" in caught.value.message


def test_vllms_own_validation_comes_first(vllm_server: VllmServer, openai_client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        ask(openai_client, "no-such-model", "hi")
    assert "no-such-model" in caught.value.message


def test_text_may_be_raw_or_ids(vllm_server: VllmServer, openai_client: OpenAI, script: ScriptWriter) -> None:
    server = lane(vllm_server)
    first = script("given as a meaning")
    assert first is not None
    script(list(first.takes[0]))
    texts = [ask(openai_client, server.model, "hi") for _ in range(2)]
    assert texts == ["given as a meaning"] * 2


def test_a_stop_token_is_appended_and_reported(
    vllm_server: VllmServer, openai_client: OpenAI, script: ScriptWriter
) -> None:
    ids = script("no stop at its end")
    assert ids is not None
    ask(openai_client, vllm_server.model, "hi")
    early = script(ids.takes[0][:-1])
    assert early is not None
    assert early.ended_early
    assert not ids.ended_early
    assert ask(openai_client, vllm_server.model, "hi") == "no stop at its end"


def test_a_script_beyond_the_token_limit_is_truncated(vllm_server: VllmServer) -> None:
    server = lane(vllm_server)
    book = server.book("over-the-limit")
    book.script(words(1), name="long one")
    with book.client() as client:
        ask(client, server.model, "hi", max_tokens=7)
    with pytest.raises(ScriptError) as caught:
        book.verify()
    assert "'long one' was truncated at token 7 of" in caught.value.message


@pytest.mark.parametrize("expect", ["truncated", "cut"])
def test_a_script_may_be_truncated_on_purpose(
    expect: Expectation, vllm_server: VllmServer, openai_client: OpenAI, script: ScriptWriter
) -> None:
    """Covers the name of the expectation (`truncated`) and its old name (`cut`)."""
    script(words(1), expect=expect)
    ask(openai_client, vllm_server.model, "hi", max_tokens=7)


def test_an_unused_script_is_reported(vllm_server: VllmServer) -> None:
    book = lane(vllm_server).book("unused")
    book.script("never requested", name="idle")
    with pytest.raises(ScriptError, match="'idle' was never used"):
        book.verify()


def ask_for_json(book: ScriptBook, model: str, stream: bool) -> None:
    """Sends a request under a grammar, and reads its answer to the end."""
    with book.client() as client:
        answer = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "hi"}],
            response_format={"type": "json_object"},
            stream=stream,
        )
        list(answer)


@pytest.mark.vllm_model("qwen3", "llama3.1")
@pytest.mark.parametrize("stream", [False, True])
def test_a_script_that_a_grammar_refuses_is_reported(stream: bool, vllm_server: VllmServer) -> None:
    server = lane(vllm_server)
    book = server.book(f"refused-{stream}")
    book.script("this is not JSON", name="prose")
    with pytest.raises(openai.APIError) as caught:
        ask_for_json(book, server.model, stream)
    assert "'prose' was refused at token" in str(caught.value)
    assert "allowed instead: " in str(caught.value)
    with pytest.raises(ScriptError, match="'prose' was refused at token"):
        book.verify()
    book.script("the engine is still up", name="after")
    with book.client() as client:
        assert "still up" in ask(client, server.model, "hi")


@pytest.mark.vllm_model("qwen3", "llama3.1")
@pytest.mark.vllm_needs("responses")
def test_structured_output_that_passes(
    vllm_server: VllmServer, openai_client: OpenAI, script: ScriptWriter
) -> None:
    script('{"name": "Paris", "population": 2100000}', constrained=True)
    parsed = openai_client.responses.parse(model=vllm_server.model, input="A city", text_format=City)
    assert parsed.output_parsed == City(name="Paris", population=2100000)


@pytest.mark.vllm_model("qwen3")
def test_required_call_that_passes(
    vllm_server: VllmServer, openai_client: OpenAI, script: ScriptWriter
) -> None:
    """The grammar requires the family's call format (up to 0.22, a JSON list); Rust also requires blanks."""
    if Version(vllm_server.vllm_version) < Version("0.23"):
        script(Raw('<think>\n\n</think>[{"name": "get_weather", "parameters": {"city": "Paris"}}]'))
    else:
        python = lane(vllm_server).launch.frontend == "python"
        script(calls=[ToolCall("get_weather", {"city": "Paris"})], constrained=python)
    chat = openai_client.chat.completions.create(
        model=vllm_server.model,
        messages=[{"role": "user", "content": "weather?"}],
        tools=[CHAT_TOOL],
        tool_choice="required",
    )
    calls = chat.choices[0].message.tool_calls or []
    assert [json.loads(call.function.arguments) for call in calls] == [{"city": "Paris"}]


def test_each_choice_has_a_separate_text(
    vllm_server: VllmServer, openai_client: OpenAI, script: ScriptWriter
) -> None:
    if lane(vllm_server).launch.frontend == "rust":
        skip(NOT_SERVED, "the Rust front end says: Only n=1 is supported.")
    script(choices=["first", "second", "third"])
    chat = openai_client.chat.completions.create(
        model=vllm_server.model, messages=[{"role": "user", "content": "hi"}], n=3
    )
    texts = [(choice.index, (choice.message.content or "").strip()) for choice in chat.choices]
    assert sorted(texts) == [(0, "first"), (1, "second"), (2, "third")]


@pytest.mark.vllm_needs("responses")
def test_rules_match_by_their_conditions(
    vllm_server: VllmServer, openai_client: OpenAI, script: ScriptWriter
) -> None:
    script("about tools", when=When(tools=("get_weather",)))
    script("the second turn", when=When(turn=1))
    script("about Rome", when=When(user="Rome"))

    def turn(text: str, **more: Any) -> Any:
        return openai_client.responses.create(model=vllm_server.model, input=text, **more)

    first = turn("Tell me about Rome")
    assert "about Rome" in first.output_text
    second = turn("And?", previous_response_id=first.id)
    assert "the second turn" in second.output_text
    third = turn("And?", tools=[RESPONSES_TOOL])
    assert "about tools" in third.output_text


async def many_at_once(server: RemoteServer, number: int, length: int) -> list[str]:
    """Returns the answers to `number` concurrent requests, half of them streamed, each with its own book."""

    async def scripted_answer(index: int) -> str:
        book = server.book(f"at-once-{index}")
        await asyncio.to_thread(book.script, words(index, length), name=f"words {index}")
        async with book.async_client() as client:
            text = await answer(client, index)
        await asyncio.to_thread(book.verify)
        return text

    async def answer(client: AsyncOpenAI, index: int) -> str:
        request: Any = {"model": server.model, "messages": [{"role": "user", "content": f"hi {index}"}]}
        if index % 2:
            return (await client.chat.completions.create(**request)).choices[0].message.content or ""
        stream = await client.chat.completions.create(**request, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

    return await asyncio.gather(*(scripted_answer(index) for index in range(number)))


async def test_concurrent_scripts_never_mix(vllm_server: VllmServer) -> None:
    texts = await many_at_once(lane(vllm_server), AT_ONCE, 12)
    assert [text.strip() for text in texts] == [words(index) for index in range(AT_ONCE)]


@pytest.mark.vllm_model("qwen3")
@pytest.mark.vllm_servers(2)
async def test_scripts_survive_preemption(vllm_server: VllmServer) -> None:
    """With memory for only a few requests, vLLM preempts and resumes; prefix caching is on by default."""
    server = lane(vllm_server)
    small = RemoteServer(
        server.entry,
        lane="scripted",
        vllm=server.environment,
        args=["--max-model-len", "1024", "--num-gpu-blocks-override", "9"],
    )
    with small:
        texts = await many_at_once(small, 8, 45)
        assert [text.strip() for text in texts] == [words(index, 45) for index in range(8)]
        assert small.metrics()["vllm:num_preemptions_total"] > 0


@pytest.mark.vllm_harmony
@pytest.mark.vllm_needs("responses")
def test_raw_harmony(vllm_server: VllmServer, openai_client: OpenAI, script: ScriptWriter) -> None:
    script(
        Raw(
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>"
        )
    )
    answer = openai_client.responses.create(model=vllm_server.model, input="hi")
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    assert answer.output_text == "Yes."


@pytest.mark.vllm_harmony
@pytest.mark.vllm_needs("responses")
def test_meaning_with_a_preamble(
    vllm_server: VllmServer, openai_client: OpenAI, script: ScriptWriter
) -> None:
    script(Meaning((Text("I shall look."), ToolCall("get_weather", {"city": "Paris"}))))
    answer = openai_client.responses.create(model=vllm_server.model, input="hi", tools=[RESPONSES_TOOL])
    assert [item.type for item in answer.output] == ["message", "function_call"]


def test_probabilities_of_other_tokens_are_reproducible(
    vllm_server: VllmServer, openai_client: OpenAI, script: ScriptWriter
) -> None:
    """The likely tokens beside the script's differ at each position, but are the same in a second request."""
    if lane(vllm_server).environment.device != "cpu":
        reason = "needs a CPU environment: on CUDA all tokens are about as likely, and near ones change"
        skip(OTHER_DEVICE, reason)
    script("Rain in Paris, sun in Rome.", times=2)

    def likely() -> list[set[str]]:
        message = {"role": "user", "content": "How is the weather?"}
        chat = openai_client.chat.completions.create(
            model=vllm_server.model, messages=[message], logprobs=True, top_logprobs=5, temperature=0
        )
        logprobs = chat.choices[0].logprobs
        assert logprobs is not None
        assert logprobs.content is not None
        return [{top.token for top in entry.top_logprobs} - {entry.token} for entry in logprobs.content]

    first = likely()
    assert first == likely()
    assert all(here != there for here, there in pairwise(first))
