"""Text over Chat Completions: roles, parts, prompts, limits, and streams with any chunk length."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.case_files import cases
from tests.chat_api import ASK, Chat, streamed
from vllm_harness._scripted.book import Raw
from vllm_harness._testing.content import expect_content
from vllm_harness._testing.fixtures import ScriptWriter

WIDE = "Zürich 🏔️ 日本語 — ‘quoted’ é x\u0301 👩‍👩‍👧 end"
INT64 = 2**63


@pytest.mark.covers("VC-004")
def test_session(chat: Chat, script: ScriptWriter) -> None:
    """Checks the exact usage and finish_reason length, then a second turn whose prompt contains the first."""
    script("one two three four five six seven eight", expect="truncated", times=2)
    script("Yes, again.")
    answers = chat.both(max_tokens=4)
    usage = answers.body.usage
    assert answers.output.finish == "length"
    assert usage is not None
    assert usage.completion_tokens == 4
    assert usage.total_tokens == usage.prompt_tokens + 4
    assert answers.body.choices[0].message.role == "assistant"
    more = [
        *ASK,
        {"role": "assistant", "content": "Marker 731."},
        {"role": "user", "content": "And marker 732?"},
    ]
    prompt = chat.prompt(more, max_tokens=20)
    assert prompt.index("Paris?") < prompt.index("Marker 731.") < prompt.index("marker 732?")


@pytest.mark.covers("VC-004", "VC-025")
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_limit_by_either_name(name: str, chat: Chat, script: ScriptWriter) -> None:
    script("one two three four five six seven eight", expect="truncated", times=2)
    answers = chat.both(**{name: 4})
    assert answers.output.finish == "length"
    assert answers.body.usage is not None
    assert answers.body.usage.completion_tokens == 4


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-025")
def test_new_name_of_the_limit_wins(chat: Chat, script: ScriptWriter) -> None:
    script("one two three four five six seven eight", expect="truncated")
    body = chat.body(max_tokens=6, max_completion_tokens=4)
    assert body.usage is not None
    assert body.usage.completion_tokens == 4


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-005", "VT-015")
@pytest.mark.parametrize("tokens", [1, 2, 3, 5, 1000])
def test_text_survives_any_chunk_length(tokens: int, chat: Chat, script: ScriptWriter) -> None:
    """Characters that consist of several tokens stay whole, however many tokens a chunk has."""
    script(WIDE, times=2)
    answers = chat.both(stream_interval=tokens)
    assert answers.streamed.content.strip() == WIDE
    pieces = [choice.delta.content or "" for chunk in answers.chunks for choice in chunk.choices]
    assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.covers("VC-005")
def test_one_role_and_one_finish(chat: Chat, script: ScriptWriter) -> None:
    script("Rain, I think.")
    chunks = chat.stream(max_tokens=20)
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert [choice.delta.role for choice in choices if choice.delta.role] == ["assistant"]
    assert choices[0].delta.role == "assistant"
    assert [bool(choice.finish_reason) for choice in choices] == [False] * (len(choices) - 1) + [True]
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1


@pytest.mark.covers("VC-009")
@pytest.mark.parametrize("case", cases("chat_messages"))
def test_message_reaches_the_model(case: dict[str, Any], chat: Chat, script: ScriptWriter) -> None:
    """Each form of a message is accepted, and the prompt contains its text once, in order."""
    script("Good.")
    prompt = chat.prompt(case["messages"], max_tokens=30)
    places = [prompt.find(text) for text in case["prompt"]]
    assert -1 not in places, prompt
    assert places == sorted(places)
    assert all(prompt.count(text) == 1 for text in case["prompt"])


@pytest.mark.covers("VC-009")
def test_unknown_fields_are_ignored(chat: Chat, script: ScriptWriter) -> None:
    script("Good.", times=2)
    answers = chat.both(field_of_tomorrow={"a": [1]}, user="somebody", metadata={"k": "v"}, max_tokens=20)
    expect_content(answers.output.content, "some text")


@pytest.mark.covers("VC-009")
@pytest.mark.parametrize("seed", [INT64 - 1, -INT64, 0])
def test_seed_within_64_bits(seed: int, chat: Chat, script: ScriptWriter) -> None:
    script("Good.")
    chat.body(seed=seed, max_tokens=20)


@pytest.mark.covers("VC-009")
@pytest.mark.parametrize("seed", [INT64, -INT64 - 1, 2**80])
def test_seed_beyond_64_bits(seed: int, chat: Chat) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        chat.body(seed=seed)
    assert "seed" in str(caught.value)
    chat.check("check_body")(caught.value.response.json())


@pytest.mark.covers("VC-009")
def test_invocations_answer_as_chat(chat: Chat, script: ScriptWriter) -> None:
    """SageMaker's path /invocations accepts a chat request."""
    script("One, two, three, four, five.", expect="truncated")
    answer = chat.post(
        "/invocations", {"model": chat.server.model, "messages": ASK, "max_tokens": 8, "temperature": 0}
    )
    assert answer.status_code == 200, answer.text
    chat.check("check_body")(answer.json())
    assert answer.json()["object"] == "chat.completion"
    assert answer.json()["usage"]["completion_tokens"] == 8


@pytest.mark.vllm_scripted
@pytest.mark.covers("VT-003")
def test_text_is_the_same_with_tools_offered(chat: Chat, script: ScriptWriter) -> None:
    """Offering tools does not change the text, including whitespace around it."""
    script("Just text.", times=4)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    assert chat.both().output == chat.both(tools=tools).output


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-025")
@pytest.mark.vllm_known_defect("content-is-null-where-limit-cuts-markup")
def test_one_token(chat: Chat, script: ScriptWriter) -> None:
    """With a limit of one token, finish_reason is length, and body and stream have the same token."""
    script("Good.", times=2, expect="truncated")
    answers = chat.both(max_tokens=1)
    assert answers.output.finish == "length"
    assert answers.body.usage is not None
    assert answers.body.usage.completion_tokens == 1


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-033")
def test_long_prompt(chat: Chat, script: ScriptWriter) -> None:
    """For a prompt longer than one prefill step, no empty first chunk is sent, and usage is exact."""
    script("Good.", times=2)
    messages = [{"role": "user", "content": " ".join(f"word{number}" for number in range(1500))}]
    answers = chat.both(messages, return_token_ids=True)
    assert answers.body.usage is not None
    assert answers.body.usage.prompt_tokens == len(answers.body.prompt_token_ids)  # type: ignore[attr-defined]
    assert answers.body.usage.prompt_tokens > 2048
    assert answers.output.content.strip() == "Good."


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3", "llama3.1")
@pytest.mark.covers("VC-025")
@pytest.mark.parametrize("side", ["left", "right"])
def test_prompt_is_truncated_on_the_side_asked_for(side: str, chat: Chat, script: ScriptWriter) -> None:
    script("Good.")
    messages = [{"role": "user", "content": " ".join(f"word{number}" for number in range(100))}]
    prompt = chat.prompt(messages, truncate_prompt_tokens=60, truncation_side=side)
    assert len(chat.tokens(prompt)) == 60
    assert ("word0 " in prompt) == (side == "right")


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-009")
def test_sampling_parameters_are_taken(chat: Chat, script: ScriptWriter) -> None:
    """The server accepts the parameters of OpenAI and vLLM; they do not change a scripted answer."""
    script("Good.", times=2)
    answers = chat.both(
        temperature=1.7,
        top_p=0.3,
        frequency_penalty=1.5,
        presence_penalty=-1.5,
        seed=7,
        top_k=40,
        min_p=0.05,
        repetition_penalty=1.1,
        min_tokens=1,
    )
    assert answers.output.content.strip() == "Good."


@pytest.mark.vllm_standard
@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-025")
def test_echo_is_of_the_same_role(chat: Chat, script: ScriptWriter) -> None:
    """With `echo`, the user's last message does not become the start of the answer."""
    script("Rain.", times=2)
    body = chat.body(echo=True, logprobs=True, top_logprobs=1)
    content = body.choices[0].message.content or ""
    assert len(body.prompt_logprobs) == body.usage.prompt_tokens  # type: ignore[attr-defined, union-attr]
    assert content.strip() == streamed(chat.stream(echo=True)).content.strip() == "Rain."


BEGUN: list[Any] = [{"role": "user", "content": "The sky?"}, {"role": "assistant", "content": "The sky"}]
GO_ON: dict[str, Any] = {
    **{"echo": True, "add_generation_prompt": False, "continue_final_message": True},
    "chat_template_kwargs": {"enable_thinking": False},
}


@pytest.mark.vllm_standard
@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.parametrize("stream", [False, True])
def test_echo_begins_with_the_last_message(stream: bool, chat: Chat, script: ScriptWriter) -> None:
    """With vLLM's own `echo`, a continued answer starts with the message that it continues."""
    script(Raw(" is blue.<|im_end|>"))
    if stream:
        content = streamed(chat.stream(BEGUN, **GO_ON)).content
    else:
        content = chat.body(BEGUN, **GO_ON).choices[0].message.content or ""
    assert content == "The sky is blue."


@pytest.mark.vllm_standard
@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VC-028")
def test_echo_begins_each_choice(chat: Chat, script: ScriptWriter) -> None:
    script(Raw(" is blue.<|im_end|>"))
    completion = chat.body(BEGUN, **GO_ON, n=2, temperature=1)
    assert [choice.message.content for choice in completion.choices] == ["The sky is blue."] * 2
