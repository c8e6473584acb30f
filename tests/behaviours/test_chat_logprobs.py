"""Logprobs and token ids over Chat Completions: their number, order, bytes, and equality when streamed."""

from __future__ import annotations

import math
from itertools import chain, pairwise
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionTokenLogprob

from tests.chat_api import FREE, PARIS, Chat
from vllm_harness._scripted.book import When
from vllm_harness._testing.fixtures import ScriptWriter

TEXT = "Rain in Paris, sun in Rome."
WIDE = "Zürich 🏔️ 日本語 👩‍👧"
NOISE = 0.05  # a GPU adds in a different order if another batch or a cached prefix changes the kernel


def entries(body: ChatCompletion) -> list[ChatCompletionTokenLogprob]:
    """Returns the logprobs of a body."""
    logprobs = body.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    return logprobs.content


def streamed(chunks: list[ChatCompletionChunk]) -> list[ChatCompletionTokenLogprob]:
    """Returns the logprobs of a stream, chunk after chunk."""
    return list(
        chain.from_iterable(
            (choice.logprobs.content if choice.logprobs else None) or ()
            for chunk in chunks
            for choice in chunk.choices
        )
    )


def assert_same_tops(left: ChatCompletionTokenLogprob, right: ChatCompletionTokenLogprob) -> None:
    """Compares the alternatives of a token; if several are as likely as the last, any may be listed."""
    tops = [
        sorted((top.logprob, top.token) for top in entry.top_logprobs if top.token != entry.token)
        for entry in (left, right)
    ]
    assert [value for value, _ in tops[0]] == pytest.approx([value for value, _ in tops[1]], abs=NOISE)
    last = min(tops[0][0][0], tops[1][0][0])
    likelier = [{token for value, token in pairs if value > last + 2 * NOISE} for pairs in tops]
    assert likelier[0] <= {token for _, token in tops[1]}
    assert likelier[1] <= {token for _, token in tops[0]}


@pytest.mark.covers("VC-001")
def test_no_logprobs_unless_asked_for(chat: Chat, script: ScriptWriter) -> None:
    script(TEXT, times=2)
    answers = chat.both(max_tokens=20)
    assert answers.body.choices[0].logprobs is None
    assert streamed(answers.chunks) == []


@pytest.mark.covers("VC-001")
@pytest.mark.parametrize("top_logprobs", [0, 1, 5, 20])
def test_number_of_top_logprobs(top_logprobs: int, chat: Chat, script: ScriptWriter) -> None:
    """Every token has an entry with exactly the requested number of alternatives."""
    script(TEXT, times=2)
    answers = chat.both(logprobs=True, top_logprobs=top_logprobs, max_tokens=20)
    content = entries(answers.body)
    assert [len(entry.top_logprobs) for entry in content] == [top_logprobs] * len(content)
    assert answers.body.usage is not None
    assert len(content) == answers.body.usage.completion_tokens
    for entry in content:
        assert entry.logprob <= 0
        assert all(top.logprob <= 0 for top in entry.top_logprobs)
        assert sum(math.exp(top.logprob) for top in entry.top_logprobs) <= 1.001
        assert len({top.token for top in entry.top_logprobs}) >= min(top_logprobs, 1)
    assert len(streamed(answers.chunks)) == len(content)


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-001", "VC-024", "VR-011")
@pytest.mark.parametrize("tokens", [1, 4, 1000])
def test_streamed_logprobs_equal_the_body(tokens: int, chat: Chat, script: ScriptWriter) -> None:
    """Body and stream have the same tokens and alternatives, even if a chunk has several tokens."""
    script(TEXT, times=2)
    answers = chat.both(logprobs=True, top_logprobs=3, stream_interval=tokens)
    expected, got = entries(answers.body), streamed(answers.chunks)
    assert [(e.token, e.bytes) for e in got] == [(e.token, e.bytes) for e in expected]
    for entry, other in zip(got, expected, strict=True):
        assert entry.logprob == pytest.approx(other.logprob, abs=NOISE)
        assert_same_tops(entry, other)
        assert all(top.bytes == entry.bytes for top in entry.top_logprobs if top.token == entry.token)
        assert any(top.token == entry.token for top in entry.top_logprobs)


@pytest.mark.vllm_scripted
@pytest.mark.vllm_model("gpt-oss", "qwen3")
@pytest.mark.vllm_needs("tools")
@pytest.mark.covers("VC-001", "VC-024")
@pytest.mark.parametrize("tokens", [1, 4, 1000])
def test_no_logprobs_of_a_call_are_lost(tokens: int, chat: Chat, script: ScriptWriter) -> None:
    """Markup, and text that may become markup, have logprobs although the parser holds them back."""
    written = script("A tag is <t", calls=[PARIS], times=2)
    assert written is not None
    answers = chat.both(tools=[FREE], logprobs=True, stream_interval=tokens)
    expected = [entry.token for entry in entries(answers.body)]
    assert len(expected) == len(written.takes[0])
    assert [entry.token for entry in streamed(answers.chunks)] == expected


@pytest.mark.vllm_scripted
@pytest.mark.vllm_standard
@pytest.mark.covers("VC-001", "VR-005")
@pytest.mark.parametrize("text", [TEXT, WIDE], ids=["text", "wide"])
def test_tokens_join_to_the_text(text: str, chat: Chat, script: ScriptWriter) -> None:
    """A character that consists of several tokens appears only in the last of them."""
    script(text)
    body = chat.body(logprobs=True)
    assert text in "".join(entry.token for entry in entries(body))


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-001", "VR-005")
def test_bytes_join_to_the_text(chat: Chat, script: ScriptWriter) -> None:
    """OpenAI documents that joining `bytes` restores characters that consist of several tokens."""
    script(WIDE)
    body = chat.body(logprobs=True)
    joined = b"".join(bytes(entry.bytes or ()) for entry in entries(body))
    assert WIDE.encode() in joined


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-001")
@pytest.mark.vllm_known_defect("said-token-takes-a-top-logprob")
def test_top_logprobs_are_the_most_likely(chat: Chat, script: ScriptWriter) -> None:
    """The alternatives are in order of probability."""
    script(TEXT)
    content = entries(chat.body(logprobs=True, top_logprobs=5))
    for entry in content:
        likely = [top.logprob for top in entry.top_logprobs]
        assert all(first >= second for first, second in pairwise(likely)), entry.token


@pytest.mark.vllm_live
@pytest.mark.covers("VC-001")
def test_the_most_likely_token_is_said_at_temperature_0(chat: Chat) -> None:
    for entry in entries(chat.body(logprobs=True, top_logprobs=2, max_tokens=20)):
        assert entry.token == entry.top_logprobs[0].token
        assert entry.logprob == pytest.approx(entry.top_logprobs[0].logprob)


@pytest.mark.covers("VC-002", "VC-027", "VC-003")
@pytest.mark.parametrize("stream", [False, True], ids=["body", "stream"])
@pytest.mark.parametrize(
    ("request_", "pattern"),
    [
        ({"logprobs": True, "top_logprobs": -2}, "top_logprobs"),
        ({"top_logprobs": 2}, "logprobs"),
        ({"logprobs": True, "top_logprobs": "two"}, "top_logprobs"),
        ({"logprobs": "often"}, "logprobs"),
        ({"prompt_logprobs": -2}, "prompt_logprobs"),
        ({"prompt_logprobs": "two"}, "prompt_logprobs"),
        ({"prompt_logprobs": 1000}, "prompt.logprobs"),
    ],
)
def test_wrong_logprobs_are_refused(request_: dict[str, Any], pattern: str, stream: bool, chat: Chat) -> None:
    chat.refused({"stream": stream, **request_}, pattern)


@pytest.mark.covers("VC-002", "VC-027")
@pytest.mark.parametrize(
    "stream",
    [
        False,
        pytest.param(
            True,
            marks=pytest.mark.vllm_known_defect("refused-after-the-stream-began"),
        ),
    ],
    ids=["body", "stream"],
)
def test_too_many_top_logprobs_are_refused(stream: bool, chat: Chat) -> None:
    chat.refused({"stream": stream, "logprobs": True, "top_logprobs": 21}, "21")


@pytest.mark.covers("VC-003")
@pytest.mark.parametrize("prompt_logprobs", [0, 1, 2])
def test_prompt_logprobs(prompt_logprobs: int, chat: Chat, script: ScriptWriter) -> None:
    """Each prompt token has an entry with itself and the likeliest tokens; the first entry is null."""
    script(TEXT)
    body = chat.body(prompt_logprobs=prompt_logprobs, return_token_ids=True, max_tokens=20)
    returned: list[Any] = body.prompt_logprobs  # type: ignore[attr-defined]
    prompt: list[int] = body.prompt_token_ids  # type: ignore[attr-defined]
    assert len(returned) == len(prompt)
    assert returned[0] is None
    for token, logprobs in zip(prompt[1:], returned[1:], strict=True):
        assert str(token) in logprobs
        assert prompt_logprobs <= len(logprobs) <= prompt_logprobs + 1
        assert all(-9999 <= logprob["logprob"] <= 0 for logprob in logprobs.values())


@pytest.mark.covers("VC-003")
def test_no_prompt_logprobs_unless_asked_for(chat: Chat, script: ScriptWriter) -> None:
    script(TEXT)
    assert getattr(chat.body(max_tokens=20), "prompt_logprobs", None) is None


@pytest.mark.covers("VC-003")
@pytest.mark.parametrize("prompt_logprobs", [1, -1], ids=["one", "all"])
def test_no_prompt_logprobs_in_a_stream(prompt_logprobs: int, chat: Chat) -> None:
    """The error names the stream as the reason, even for -1 (all), which also exceeds the maximum."""
    pattern = "prompt_logprobs" if chat.rust else r"prompt_logprobs.*stream"
    with pytest.raises(openai.BadRequestError, match=pattern):
        chat.stream(prompt_logprobs=prompt_logprobs)


@pytest.mark.vllm_alone
@pytest.mark.covers("VC-031")
def test_logprobs_of_chosen_tokens(chat: Chat, script: ScriptWriter) -> None:
    """Every position has exactly the requested ids and the generated token."""
    script(TEXT)
    wanted = [11, 500, 4321]
    body = chat.body(logprobs=True, logprob_token_ids=wanted, return_tokens_as_token_ids=True, max_tokens=20)
    for entry in entries(body):
        returned = {top.token for top in entry.top_logprobs}
        assert returned == {f"token_id:{token}" for token in wanted} | {entry.token}


@pytest.mark.vllm_scripted
@pytest.mark.vllm_alone
@pytest.mark.covers("VC-031")
@pytest.mark.vllm_known_defect("vllm-51789")
def test_chosen_tokens_of_one_request_are_not_those_of_another(chat: Chat, script: ScriptWriter) -> None:
    """Two requests in one batch each get the number of alternatives that they requested."""
    script("word " * 1000, when=When(user="on and on"), expect="truncated")
    script(TEXT, when=When(user="be brief"))
    stream = chat.client.chat.completions.create(
        model=chat.server.model,
        messages=[{"role": "user", "content": "Go on and on"}],
        logprobs=True,
        top_logprobs=5,
        max_tokens=600,
        temperature=0,
        stream=True,
    )
    first = next(stream)
    brief = [{"role": "user", "content": "Now be brief"}]
    chat.body(brief, logprobs=True, logprob_token_ids=[11], max_tokens=20)
    assert {len(entry.top_logprobs) for entry in streamed([first, *stream])} == {5}


@pytest.mark.covers("VC-031")
@pytest.mark.parametrize(
    ("request_", "pattern"),
    [
        ({"logprobs": True, "logprob_token_ids": [10**9]}, str(10**9)),
        ({"logprobs": True, "logprob_token_ids": [-1]}, "-1"),
        ({"logprob_token_ids": [5]}, "logprobs"),
        ({"logit_bias": {str(10**9): 5}}, str(10**9)),
        ({"logit_bias": {"word": 5}}, "word"),
        ({"logit_bias": {"5": "much"}}, "logit_bias"),
        ({"allowed_token_ids": [10**9]}, "allowed_token_ids"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"bad_words": [""]}, "bad_words"),
    ],
)
def test_wrong_token_ids_are_refused(request_: dict[str, Any], pattern: str, chat: Chat) -> None:
    """The error message names what is wrong with the token ids."""
    chat.refused(request_, pattern)


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-031")
def test_bias_forbids_a_token(chat: Chat, script: ScriptWriter) -> None:
    """The scripted answer fails, because allowed_token_ids forbids its first token."""
    script("Rain.", expect="refused")
    with pytest.raises(openai.APIError, match="was refused at token 0"):
        chat.body(allowed_token_ids=[11])


@pytest.mark.vllm_scripted
@pytest.mark.covers("VC-031")
@pytest.mark.parametrize(("text", "place"), [("Rain comes.", 0), ("Then Rain comes.", 1)])
def test_bad_word_is_forbidden(text: str, place: int, chat: Chat, script: ScriptWriter) -> None:
    """A bad word is forbidden both at the beginning of a text and after a space."""
    script(chat.tokens(text), expect="refused")
    with pytest.raises(openai.APIError, match=f"was refused at token {place}"):
        chat.body(bad_words=["Rain"])


@pytest.mark.vllm_standard
@pytest.mark.covers("VC-032")
def test_text_of_the_prompt(chat: Chat, script: ScriptWriter) -> None:
    """With vLLM's own `return_prompt_text`, the body and the stream's first chunk contain the prompt."""
    script(TEXT, times=2)
    answers = chat.both(return_prompt_text=True, return_token_ids=True, max_tokens=20)
    text: str = answers.body.prompt_text  # type: ignore[attr-defined]
    assert chat.text(answers.body.prompt_token_ids) == text  # type: ignore[attr-defined]
    prompt_texts = [getattr(chunk, "prompt_text", None) for chunk in answers.chunks]
    assert prompt_texts[0] == text
    assert not any(prompt_texts[1:])


@pytest.mark.covers("VC-032")
def test_token_ids(chat: Chat, script: ScriptWriter) -> None:
    """Only the first chunk has prompt ids; the deltas' ids add up to the body's, and decode to the text."""
    written = script(TEXT, times=2)
    answers = chat.both(return_token_ids=True, max_tokens=20)
    ids: list[int] = answers.body.choices[0].token_ids  # type: ignore[attr-defined]
    parts = [getattr(c, "token_ids", None) or [] for chunk in answers.chunks for c in chunk.choices]
    assert list(chain.from_iterable(parts)) == ids
    prompts = [getattr(chunk, "prompt_token_ids", None) for chunk in answers.chunks]
    assert prompts[0] == answers.body.prompt_token_ids  # type: ignore[attr-defined]
    assert not any(prompts[1:])
    usage = answers.body.usage
    assert usage is not None
    assert (len(prompts[0] or ()), len(ids)) == (usage.prompt_tokens, usage.completion_tokens)
    assert answers.output.content.strip() in chat.text(ids)
    if written is not None:
        assert ids == list(written.takes[0])


@pytest.mark.covers("VC-032")
def test_no_token_ids_unless_asked_for(chat: Chat, script: ScriptWriter) -> None:
    script(TEXT, times=2)
    answers = chat.both(max_tokens=20)
    assert getattr(answers.body, "prompt_token_ids", None) is None
    assert getattr(answers.body.choices[0], "token_ids", None) is None
    assert not any(getattr(chunk, "prompt_token_ids", None) for chunk in answers.chunks)
    assert not any(getattr(c, "token_ids", None) for chunk in answers.chunks for c in chunk.choices)


@pytest.mark.covers("VC-032")
def test_tokens_by_their_ids(chat: Chat, script: ScriptWriter) -> None:
    """`token_id:N` replaces the text of each token, in the body and in the stream."""
    script(TEXT, times=2)
    answers = chat.both(
        logprobs=True,
        top_logprobs=1,
        return_tokens_as_token_ids=True,
        return_token_ids=True,
        max_tokens=20,
    )
    ids: list[int] = answers.body.choices[0].token_ids  # type: ignore[attr-defined]
    assert [entry.token for entry in entries(answers.body)] == [f"token_id:{token}" for token in ids]
    assert [entry.token for entry in streamed(answers.chunks)] == [f"token_id:{token}" for token in ids]
    tops = [top.token for entry in entries(answers.body) for top in entry.top_logprobs]
    assert all(top.startswith("token_id:") for top in tops)
