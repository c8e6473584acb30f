"""Plain answers over Anthropic Messages: text, system, turns, limits, stop sequences, usage, token counts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.behaviours.stop_strings import AND_ON
from tests.messages_api import Messages, for_sdk, kinds, text_of
from vllm_harness._scripted.book import When
from vllm_harness._testing.content import expect_content
from vllm_harness._testing.fixtures import ScriptWriter

pytestmark = pytest.mark.vllm_needs("messages")

FRANCE = "What is the capital of France? Answer in one short sentence."
PARIS = "The capital of France is Paris."
STORY = "one two three four five six seven eight nine ten eleven twelve"
TURNS: list[Any] = [
    {"role": "user", "content": FRANCE},
    {"role": "assistant", "content": PARIS},
    {"role": "user", "content": "And of Italy?"},
]
BILLING = "x-anthropic-billing-header: cc_version=2; cch=0123;"


@pytest.mark.covers("VA-001", "VA-014", "VA-024", "LS-041")
def test_answer_in_both_ways(messages: Messages, script: ScriptWriter) -> None:
    script(PARIS, times=2)
    body, stream = messages.both(FRANCE)
    assert body.stop_reason == "end_turn"
    assert body.role == "assistant"
    expect_content("Paris" in text_of(body), f"Paris, not {text_of(body)!r}")
    if script.exact:
        assert text_of(body) == PARIS
        assert kinds(body)[-1] == "text"
    start = stream.of("message_start")[0]["message"]
    assert start["content"] == []
    assert start["usage"]["output_tokens"] == 0


@pytest.mark.covers("LS-041")
def test_the_sdks_own_stream_helper(messages: Messages, script: ScriptWriter) -> None:
    script(PARIS)
    with messages.client.messages.stream(**for_sdk(messages.request(FRANCE, {}))) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text.strip() == text_of(final)
    assert final.stop_reason == "end_turn"
    expect_content("Paris" in text, f"Paris, not {text!r}")


@pytest.mark.vllm_scripted
@pytest.mark.covers("VA-001", "LS-041")
def test_system_prompt_is_part_of_the_prompt(messages: Messages, script: ScriptWriter) -> None:
    """A system prompt has the same token count as a string and as blocks, and count_tokens includes it."""
    script("Aye.", times=2)
    plain = messages.create("Ahoy", system="Talk like a pirate.")
    blocks = [{"type": "text", "text": "Talk like "}, {"type": "text", "text": "a pirate."}]
    assert messages.create("Ahoy", system=blocks).usage.input_tokens == plain.usage.input_tokens
    assert messages.count("Ahoy", system="Talk like a pirate.") == plain.usage.input_tokens
    assert plain.usage.input_tokens > messages.count("Ahoy")


@pytest.mark.covers("LS-041")
def test_turns(messages: Messages, script: ScriptWriter) -> None:
    script("The capital of Italy is Rome.", when=When(turn=1, user="Italy"), times=2)
    blocks = [{**turn, "content": [{"type": "text", "text": turn["content"]}]} for turn in TURNS]
    expect_content("Rome" in text_of(messages.create(TURNS)), "Rome")
    expect_content("Rome" in text_of(messages.create(blocks)), "Rome")
    assert messages.count(TURNS) == messages.count(blocks) > messages.count(FRANCE)


@pytest.mark.covers("LS-041", "VA-019")
def test_token_limit(messages: Messages, script: ScriptWriter) -> None:
    script(STORY, expect="truncated", times=2)
    body, stream = messages.both("Tell me a long story about a dragon.", max_tokens=6)
    assert body.stop_reason == "max_tokens"
    assert body.usage.output_tokens == 6
    assert stream.of("message_delta")[0]["usage"]["output_tokens"] == 6


@pytest.mark.vllm_scripted
@pytest.mark.covers("VA-018", "LS-041")
@pytest.mark.vllm_known_defect("vllm-52599")
def test_stop_sequence(messages: Messages, script: ScriptWriter) -> None:
    script(f"We count: one two STOP{AND_ON}", expect="truncated", times=2)
    body, stream = messages.both("Count", stop_sequences=["never said", "STOP"])
    assert body.stop_reason == "stop_sequence"
    assert body.stop_sequence == "STOP"
    assert text_of(body) == "We count: one two"
    assert stream.of("message_delta")[0]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "STOP"}


@pytest.mark.vllm_scripted
@pytest.mark.covers("VA-018")
def test_natural_end_names_no_stop_sequence(messages: Messages, script: ScriptWriter) -> None:
    script(PARIS, times=2)
    body, stream = messages.both(FRANCE, stop_sequences=["STOP"])
    assert body.stop_reason == "end_turn"
    assert stream.of("message_delta")[0]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}


@pytest.mark.covers("VA-002", "VA-011", "LS-041")
def test_usage(messages: Messages, script: ScriptWriter) -> None:
    """The token counts at the start and end of the stream equal those in the body and from count_tokens."""
    take = script(PARIS, times=2)
    body, stream = messages.both(FRANCE)
    message = stream.of("message_start")[0]["message"]
    assert [message[key] for key in ("stop_reason", "stop_sequence")] == [None, None]
    start = message["usage"]
    end = stream.of("message_delta")[0]["usage"]
    assert (
        body.usage.input_tokens == start["input_tokens"] == end["input_tokens"] == messages.count(FRANCE) > 5
    )
    assert body.usage.output_tokens == end["output_tokens"] > 0
    if take is not None:
        assert body.usage.output_tokens == len(take.takes[0])


@pytest.mark.covers("LS-041", "VA-017")
def test_sampling_parameters_are_taken(messages: Messages, script: ScriptWriter) -> None:
    script(PARIS)
    more = {"watermarking": False, "cache_salt": "s3cret", "metadata": {"user_id": "u"}}
    message = messages.create(FRANCE, max_tokens=60, temperature=0.5, top_p=0.9, top_k=5, **more)
    assert message.stop_reason in ("end_turn", "max_tokens")


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("qwen3")
@pytest.mark.covers("VA-016", "VA-021")
def test_answer_that_is_cut_before_its_first_word_has_an_empty_text(
    messages: Messages, script: ScriptWriter
) -> None:
    script(PARIS, reasoning="Hm.", expect="truncated")
    message = messages.create(FRANCE, max_tokens=1)
    assert [(block.type, getattr(block, "text", None)) for block in message.content] == [("text", "")]
    assert message.stop_reason == "max_tokens"


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("gpt-oss", "llama3.1")
@pytest.mark.covers("VA-016")
def test_empty_answer_has_an_empty_text(messages: Messages, script: ScriptWriter) -> None:
    """An empty answer has an empty text block, for clients that read content[0]."""
    script("")
    message = messages.create("Say nothing.")
    assert [block.model_dump(include={"type", "text"}) for block in message.content] == [
        {"type": "text", "text": ""}
    ]
    assert message.stop_reason == "end_turn"


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("gpt-oss", "llama3.1")
@pytest.mark.covers("VA-016")
@pytest.mark.vllm_known_defect("empty-answer-of-a-messages-stream")
def test_empty_answer_in_both_ways(messages: Messages, script: ScriptWriter) -> None:
    script("", times=2)
    messages.both("Say nothing.")


@pytest.mark.vllm_scripted
@pytest.mark.covers("VA-009")
def test_billing_header_is_left_out(messages: Messages) -> None:
    """Claude Code's billing header differs in every request; in the prompt it would defeat prefix caching."""
    without = messages.count("Hi", system=[{"type": "text", "text": "Be brief."}])
    header = {"type": "text", "text": BILLING}
    assert messages.count("Hi", system=[header, {"type": "text", "text": "Be brief."}]) == without
    inline = [{"role": "user", "content": "Hi"}, {"role": "system", "content": BILLING}]
    assert messages.count(inline) == messages.count("Hi")


@pytest.mark.vllm_scripted
@pytest.mark.covers("VA-012")
def test_system_message_among_the_others(messages: Messages, script: ScriptWriter) -> None:
    """Claude Code's reminders are merged into the system prompt or kept in place, not lost or refused."""
    script("Fine.")
    reminder = {"role": "system", "content": "The user opened notes.txt."}
    conversation = [*TURNS[:2], reminder, TURNS[2]]
    message = messages.create(conversation, system="Be short.")
    assert message.usage.input_tokens > messages.count(TURNS, system="Be short.") + 3
    assert messages.count(conversation, system="Be short.") == message.usage.input_tokens


@pytest.mark.vllm_scripted
def test_empty_text_blocks_are_taken(messages: Messages, script: ScriptWriter) -> None:
    script("Hello.")
    conversation = [
        {"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "Hi"}]}
    ]
    assert messages.create(conversation).usage.input_tokens == messages.count("Hi")
