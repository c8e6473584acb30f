"""Tests the llama_json dialect, whose turns are a text or a single call."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_harness._scripted.dialects import DialectError, render
from vllm_harness._scripted.meaning import Meaning, Part, Reasoning, Text, ToolCall

CALL = ToolCall("get_weather", {"city": "Paris"})
PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"))


@given(name=PLAIN.filter(bool), arguments=st.dictionaries(PLAIN, PLAIN | st.integers() | st.none()))
def test_a_call_is_one_json_object(name: str, arguments: dict[str, object]) -> None:
    text = render("llama_json", Meaning.of(calls=(ToolCall(name, arguments),)))
    assert text.endswith("<|eot_id|>")
    assert json.loads(text.removesuffix("<|eot_id|>")) == {"name": name, "parameters": arguments}


@given(text=PLAIN)
def test_a_text_is_unchanged(text: str) -> None:
    assert render("llama_json", Meaning.of(text)) == f"{text}<|eot_id|>"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((CALL, CALL), "writes 1 call per turn, not 2"),
        ((Text("On it."), CALL), "text or calls, never both; not Text, ToolCall"),
        ((Reasoning("Hm."), CALL), "has no reasoning"),
        ((CALL, Text("Done.")), "not ToolCall, Text"),
        ((Text("<|python_tag|>"),), r"reads <\|python_tag\|> as a marker"),
    ],
)
def test_meanings_that_llama_json_cannot_write(parts: tuple[Part, ...], message: str) -> None:
    with pytest.raises(DialectError, match=message):
        render("llama_json", Meaning(parts))
