"""A prompt must contain all texts and calls, once each and in order, in any chat template's format."""

from __future__ import annotations

import json

from vllm_harness._exchange.answer import Answer, Call
from vllm_harness._exchange.building import ContentPart, PastTurn, Result, TurnInput
from vllm_harness._scenarios.prompts import Element, differing, elements_of, foreign, lost
from vllm_harness._scenarios.results import Prompt

OUTPUT = '{"status": "failed", "note": "früh"}'
ASKED = PastTurn(
    TurnInput((), (ContentPart(text="Status of job-382?"),)),
    Answer("completed", calls=(Call("c1", "get_status", '{"job_id": "job-382", "n": 3}'),)),
)
NOW = TurnInput((Result("c1", OUTPUT),), (ContentPart(text="Restart it."),))
ELEMENTS = elements_of([ASKED], NOW)
CALL = '<call>get_status {"job_id": "job-382", "n": 3}</call>'
PROMPT = f"<tools>get_status</tools><u>Status of job-382?<a>{CALL}<t>{OUTPUT}<u>Restart it.<a>"


def kinds(prompt: str) -> list[tuple[str, str]]:
    return [(finding.code, finding.kind) for finding in lost(prompt, ELEMENTS, "$.x.prompt")]


def test_elements_are_in_order() -> None:
    assert [(each.kind, each.text, each.values) for each in ELEMENTS] == [
        ("message", "Status of job-382?", ()),
        ("function_call", "get_status", ("job-382", "3")),
        ("function_call_output", OUTPUT, ()),
        ("message", "Restart it.", ()),
    ]


def test_a_complete_prompt() -> None:
    assert kinds(PROMPT) == []
    for escaped in (json.dumps(OUTPUT)[1:-1], json.dumps(OUTPUT, ensure_ascii=False)[1:-1]):
        assert kinds(PROMPT.replace(OUTPUT, escaped)) == []


def test_lost_elements() -> None:
    assert kinds(PROMPT.replace("Status of job-382?", "")) == [("CP102", "message")]
    assert kinds(PROMPT.replace(OUTPUT, "")) == [("CP102", "function_call_output")]
    assert kinds(PROMPT.replace(CALL, "")) == [("CP102", "function_call")]
    assert kinds(PROMPT.replace(CALL, CALL.replace("job-382", "job-383"))) == [("CP102", "function_call")]


def test_another_order() -> None:
    assert kinds(PROMPT.replace(f"{CALL}<t>{OUTPUT}", f"<t>{OUTPUT}{CALL}")) == [("CP102", "function_call")]
    moved = PROMPT.replace("<u>Restart it.", "").replace("<u>Status", "<u>Restart it.<u>Status")
    assert kinds(moved) == [("CP102", "message")]


def test_repeated_elements() -> None:
    assert kinds(PROMPT + "Restart it.") == [("CP101", "message")]
    assert kinds(PROMPT + OUTPUT) == [("CP101", "function_call_output")]
    assert kinds(PROMPT.replace(CALL, CALL * 2)) == [("CP101", "function_call")]


def test_a_text_within_another_does_not_count_twice() -> None:
    elements = [Element("message", "job-382"), Element("message", "Restart job-382 now")]
    assert lost("job-382 | Restart job-382 now", elements, "$") == []


def test_an_output_that_repeats_the_arguments() -> None:
    call = Element("function_call", "f", ("7",), '{"id": "7"}')
    elements = [Element("message", "Go."), call, Element("function_call_output", '{"id": "7"}')]
    for written in ('{"id": "7"}', '{"id":"7"}'):
        assert lost(f'Go. f {written} | {{"id": "7"}}', elements, "$") == []


def test_elements_of_other_branches() -> None:
    others = [Element("message", "Noted left."), Element("message", "Restart it.")]
    (finding,) = foreign(PROMPT + "Noted left.", ELEMENTS, others, "$.x.prompt")
    assert (finding.code, finding.actual) == ("CP103", '"Noted left."')
    assert foreign(PROMPT, ELEMENTS, others, "$.x.prompt") == []


def test_prompts_that_should_be_equal() -> None:
    whole = Prompt((1, 2, 3), "one two three")
    assert differing(whole, Prompt((1, 2, 3), "one two three"), "$", "chat") == []
    (finding,) = differing(whole, Prompt((1, 3), "one three"), "$", "chat")
    assert (finding.code, finding.expected, finding.actual) == ("CP101", '"one two three"', '"one three"')
