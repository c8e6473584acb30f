"""Answers that quote the request: the server writes the quotes as the dialect would."""

from __future__ import annotations

import string
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.books import served  # noqa: F401  (adds the server's modules to the path)
from vllm_harness._scripted.dialects import DialectError, find_dialect, render
from vllm_harness._scripted.meaning import Meaning, Raw, ToolCall
from vllm_harness._scripted.quoting import Quoting, groups_in, pieces, sample, unquoted

from vllm_harness_served import QuoteError, quoted  # isort: skip

ANSWERS = (
    Meaning.of("In ${city} it is ${sky}; $${city} is not a quote."),
    Meaning.of(
        calls=(ToolCall("get_weather", {"city": "${city}", "more": ["x ${sky}", {"deep": "${city}"}]}),)
    ),
)
MARKERS = st.sampled_from(["<|end|>", "</tool_call>", "<tool_call>", "</parameter>", "</think>", "{", "<"])


NOTATIONS = (
    "harmony",
    "qwen3",
    "pythonic",
    "qwen3_coder",
    "minimax_m3",
    "functiongemma",
    "minicpm5",
    "mistral",
)
"""One dialect for each notation of arguments."""


def rendering(dialect: str, answer: Meaning | Raw) -> str:
    """Returns an answer in the dialect's format."""
    return answer.text if isinstance(answer, Raw) else render(dialect, answer)


def template(dialect: str, answer: Meaning | Raw) -> dict[str, Any]:
    """Returns the pieces from which the server assembles an answer."""
    known = find_dialect(dialect).markers
    return {"pieces": pieces(Quoting(answer), partial(rendering, dialect), known)}


TEMPLATES = {dialect: [template(dialect, answer) for answer in ANSWERS] for dialect in NOTATIONS}


@pytest.mark.parametrize("dialect", NOTATIONS)
@given(answer=st.sampled_from(range(2)), value=st.text(string.printable + "é語😀", max_size=12) | MARKERS)
def test_a_quote_is_written_as_the_dialect_writes_it(dialect: str, answer: int, value: str) -> None:
    template = ANSWERS[answer]
    try:
        written = quoted(TEMPLATES[dialect][answer], dict.fromkeys(groups_in(template), value))
    except QuoteError:
        return
    try:
        expected = rendering(dialect, sample(Quoting(template), value))
    except DialectError:
        pytest.fail(f"quoted {value!r}, which dialect {dialect} cannot write there")
    assert written == expected


@pytest.mark.parametrize("dialect", NOTATIONS)
def test_ordinary_text_is_quoted(dialect: str) -> None:
    for answer, made in zip(ANSWERS, TEMPLATES[dialect], strict=True):
        for value in ("Paris", "São Paulo, 24 °C", "two words", ""):
            groups = dict.fromkeys(groups_in(answer), value)
            assert quoted(made, groups) == rendering(dialect, sample(Quoting(answer), value))


def test_text_without_quotes_is_unchanged() -> None:
    answer = Meaning.of("costs $5, ${ and $ and {city} and $${city}")
    assert groups_in(answer) == []
    assert unquoted(answer) == Meaning.of("costs $5, ${ and $ and {city} and ${city}")
    raw = Raw("<tool_call>${city}")
    assert quoted(template("qwen3", raw), {"city": '"'}) == '<tool_call>"'
