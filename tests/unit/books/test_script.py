"""The content of a script is checked before any request to the server."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._errors import UsageError
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._scripted.meaning import ToolCall

CALL = ToolCall("get_weather", {"city": "Paris"})


@pytest.fixture
def book() -> ScriptBook:
    return ScriptBook(Endpoint("http://127.0.0.1:1"), load_models(None).get("qwen3"))


@pytest.mark.parametrize("say", [CALL, [CALL], [1, CALL]], ids=["call", "calls", "among ids"])
def test_calls_are_passed_by_name(say: Any, book: ScriptBook) -> None:
    with pytest.raises(UsageError, match="a script accepts text") as raised:
        book.script(say)
    assert raised.value.hint == "name the calls: script(calls=[ToolCall(...)])"


@pytest.mark.parametrize("say", [{"text": "Hi"}, 7, ["Hi"], b"Hi", [1.0]])
@pytest.mark.parametrize("place", ["say", "turns", "choices"])
def test_other_content_is_refused(say: Any, place: str, book: ScriptBook) -> None:
    given: Any = {"say": say} if place == "say" else {place: ["Hi", say]}
    with pytest.raises(UsageError, match="a script accepts text, a Meaning, Raw text or token ids, not"):
        book.script(**given)
    assert not book.scripts
