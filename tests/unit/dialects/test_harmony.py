"""Compares the harmony dialect with OpenAI's own implementation of the format."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_harness._environments.assets import cached
from vllm_harness._scripted.dialects import DialectError, render
from vllm_harness._scripted.meaning import Meaning, Part, Reasoning, Text, ToolCall

CALL = ToolCall("get_weather", {"city": "Paris"})
PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"))
NAMES = st.from_regex(r"[a-zA-Z0-9_-]{1,64}", fullmatch=True)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PLAIN, inner, max_size=3),
    max_leaves=5,
)
EARLIER = st.lists(st.builds(Reasoning, PLAIN) | st.builds(Text, PLAIN), max_size=3)
LAST = st.builds(Text, PLAIN) | st.builds(ToolCall, NAMES, st.dictionaries(PLAIN, VALUES, max_size=3))


@pytest.fixture(scope="module")
def encoding() -> Any:
    """openai-harmony's encoding, from a local ranks file, since unit tests download nothing."""
    asset = cached("harmony-encodings")
    folder = os.environ.get("TIKTOKEN_ENCODINGS_BASE") or (asset and asset.folder)
    if not folder:
        pytest.skip("no o200k_base.tiktoken here: `vllm-harness env assets fetch harmony-encodings`")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_ENCODINGS_BASE", str(folder))
        from openai_harmony import HarmonyEncodingName, load_harmony_encoding

        return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)


def read(encoding: Any, text: str) -> list[tuple[str, str | None, str]]:
    """Parses a text with openai-harmony; returns each message's channel, recipient and content."""
    from openai_harmony import Role

    tokens = encoding.encode(text, allowed_special="all")
    messages = encoding.parse_messages_from_completion_tokens(tokens, Role.ASSISTANT, strict=True)
    return [
        (message.channel, message.recipient, "".join(part.text for part in message.content))
        for message in messages
    ]


def expected(part: Part, *, last: bool) -> tuple[str, str | None, str]:
    """Returns the expected message for a part; the Harmony documentation defines the channels."""
    if isinstance(part, ToolCall):
        return ("commentary", f"functions.{part.name}", part.arguments_json)
    if isinstance(part, Reasoning):
        return ("analysis", None, part.text)
    return ("final" if last else "commentary", None, part.text)


def test_published_examples() -> None:
    answer = Meaning.of(
        "2 + 2 = 4.", reasoning='User asks: "What is 2 + 2?" Simple arithmetic. Provide answer.'
    )
    assert render("harmony", answer) == (
        '<|channel|>analysis<|message|>User asks: "What is 2 + 2?" Simple arithmetic. Provide answer.<|end|>'
        "<|start|>assistant<|channel|>final<|message|>2 + 2 = 4.<|return|>"
    )
    call = ToolCall("get_weather", '{"location":"San Francisco"}')
    assert render("harmony", Meaning.of(reasoning="Need to use function get_weather.", calls=(call,))) == (
        "<|channel|>analysis<|message|>Need to use function get_weather.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json"
        '<|message|>{"location":"San Francisco"}<|call|>'
    )


def test_json_under_a_grammar_is_marked() -> None:
    answer = Meaning.of('{"city": "Paris"}', reasoning="Paris.")
    assert render("harmony", answer, constrained=True) == (
        "<|channel|>analysis<|message|>Paris.<|end|>"
        '<|start|>assistant<|channel|>final <|constrain|>json<|message|>{"city": "Paris"}<|return|>'
    )
    assert render("harmony", Meaning.of("Paris"), constrained=True) == render("harmony", Meaning.of("Paris"))


@given(earlier=EARLIER, last=LAST)
def test_openai_harmony_reads_the_same_meaning(encoding: Any, earlier: list[Part], last: Part) -> None:
    text = render("harmony", Meaning((*earlier, last)))
    assert read(encoding, text) == [
        *(expected(part, last=False) for part in earlier),
        expected(last, last=True),
    ]


def test_openai_harmony_writes_the_same_analysis_and_preamble(encoding: Any) -> None:
    from openai_harmony import Message, Role

    messages = [
        Message.from_role_and_content(Role.ASSISTANT, "Hm.").with_channel("analysis"),
        Message.from_role_and_content(Role.ASSISTANT, "I look it up.").with_channel("commentary"),
    ]
    written = encoding.decode_utf8([token for message in messages for token in encoding.render(message)])
    rendered = render("harmony", Meaning((Reasoning("Hm."), Text("I look it up."), CALL)))
    assert f"<|start|>assistant{rendered}".startswith(f"{written}<|start|>assistant<|channel|>commentary to=")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((), "ends a turn with text or a call"),
        ((Reasoning("Hm."),), "ends a turn with text or a call"),
        ((CALL, CALL), "ends a turn at its first call"),
        ((CALL, Text("Done.")), "ends a turn at its first call"),
        ((Text("a <|end|> b"),), r"reads <\|end\|> as a marker"),
        ((ToolCall("f", {"a": "<|call|>"}),), r"reads <\|call\|> as a marker"),
        ((ToolCall("two words", {}),), "cannot write 'two words' as a recipient"),
    ],
)
def test_meanings_that_harmony_cannot_write(parts: tuple[Part, ...], message: str) -> None:
    with pytest.raises(DialectError, match=message):
        render("harmony", Meaning(parts))
