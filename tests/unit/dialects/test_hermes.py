"""Tests that an independent parser reads back what the hermes and qwen3 dialects write."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_harness._scripted.dialects import DialectError, render
from vllm_harness._scripted.meaning import Meaning, Part, Reasoning, Text, ToolCall

CALL = ToolCall("get_weather", {"city": "Paris"})
PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('a"\\\n</tool_call>')),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
CALLS = st.lists(
    st.builds(ToolCall, PLAIN.filter(bool), st.dictionaries(PLAIN, VALUES, max_size=3)), max_size=3
)


def read(text: str) -> Meaning:
    """Parses a turn from left to right; the end of a call's JSON ends the call."""
    assert text.endswith("<|im_end|>")
    rest = text.removesuffix("<|im_end|>")
    block = re.match(r"<think>\n(.*?)\n</think>\n\n", rest, re.DOTALL)
    rest = rest[block.end() :] if block else rest
    content, opener, body = rest.partition("<tool_call>\n")
    calls = []
    while opener:
        value, end = json.JSONDecoder().raw_decode(body)
        calls.append(ToolCall(value["name"], value["arguments"]))
        assert body[end:].startswith("\n</tool_call>")
        between, opener, body = body[end + len("\n</tool_call>") :].partition("<tool_call>\n")
        assert between == ("\n" if opener else "")
    content = content.removesuffix("\n") if calls else content
    return Meaning.of(content or None, reasoning=block and block[1], calls=tuple(calls))


@given(reasoning=st.none() | PLAIN, text=st.none() | PLAIN.filter(bool), calls=CALLS)
def test_a_turn_reads_back(reasoning: str | None, text: str | None, calls: list[ToolCall]) -> None:
    meaning = Meaning.of(text, reasoning=reasoning, calls=tuple(calls))
    assert read(render("hermes", meaning)) == meaning


@given(text=PLAIN.filter(bool), calls=CALLS)
def test_qwen3_always_writes_a_think_block(text: str, calls: list[ToolCall]) -> None:
    meaning = Meaning.of(text, calls=tuple(calls))
    assert read(render("qwen3", meaning)) == Meaning((Reasoning(""), *meaning.parts))
    with_reasoning = Meaning((Reasoning("Hm."), *meaning.parts))
    assert render("qwen3", with_reasoning) == render("hermes", with_reasoning)


def test_a_turn_matches_the_chat_template_of_qwen() -> None:
    assert render("qwen3", Meaning.of("On it.", reasoning="Two cities.", calls=(CALL, CALL))) == (
        "<think>\nTwo cities.\n</think>\n\nOn it.\n"
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call><|im_end|>'
    )


def test_malformed_arguments_stay_unchanged() -> None:
    assert '"arguments": {"city": }\n' in render("hermes", Meaning.of(calls=(ToolCall("f", '{"city": '),)))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((CALL, Reasoning("Hm.")), "then texts and calls alternately; not ToolCall, Reasoning"),
        ((Text("a"), Text("b")), "not Text, Text"),
        ((Text("a"), Reasoning("b")), "not Text, Reasoning"),
        ((Text("a <tool_call> b"),), "reads <tool_call> as a marker"),
        ((Reasoning("a </think> b"),), "reads </think> as a marker"),
        ((ToolCall("f", {"a": "<|im_end|>"}),), r"reads <\|im_end\|> as a marker"),
    ],
)
def test_meanings_that_hermes_cannot_write(parts: tuple[Part, ...], message: str) -> None:
    with pytest.raises(DialectError, match=message):
        render("hermes", Meaning(parts))
