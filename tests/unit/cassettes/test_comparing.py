"""Comparing cassettes: which differences are reported, and which are ignored."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.unit.cassettes.samples import CALL, conversation, exchange, message, of, response, streamed
from vllm_harness._cassettes.comparing import compare, facts, order_of, without_words
from vllm_harness._cassettes.format import Cassette, RecordedExchange
from vllm_harness._cassettes.writing import write
from vllm_harness._files.redaction import Redactor
from vllm_harness._protocol.samples import SAMPLES
from vllm_harness.cli.main import app


def _call(**changes: Any) -> Cassette:
    return of(exchange("ask", {}, response("resp_1", {**CALL, **changes})))


def _places(left: Cassette, right: Cassette) -> dict[str, tuple[str, str]]:
    return {f"{each.layer} {each.place}": (each.left, each.right) for each in compare(left, right)}


def test_a_cassette_equals_itself() -> None:
    assert compare(conversation(), conversation()) == []


@pytest.mark.parametrize(
    ("changes", "place", "sides"),
    [
        ({"status": None}, "protocol function_call.status", ('"completed"', "null")),
        ({"id": None}, "protocol function_call.id", ("fc_…", "null")),
        (
            {"call_id": "chatcmpl-tool-0123456789"},
            "protocol function_call.call_id",
            ("a text", "chatcmpl-tool-…"),
        ),
        ({"item_id": "x"}, "protocol function_call.item_id", ("nothing", "a text")),
        ({"name": "other"}, "meaning calls[0].name", ('"get_weather"', '"other"')),
        ({"arguments": '{"city": "Rome"}'}, "meaning calls[0].arguments.city", ('"Paris"', '"Rome"')),
    ],
)
def test_differences(changes: dict[str, Any], place: str, sides: tuple[str, str]) -> None:
    first = _call(id="fc_0123456789", **({"call_id": "c"} if "call_id" in changes else {}))
    found = _places(first, _call(**{"id": "fc_9876543210", **changes}))
    assert found[place] == sides


def test_ids_times_and_the_form_of_arguments_do_not_count() -> None:
    first = _call(id="fc_0123456789", call_id="call_0123456789")
    second = _call(id="fc_abcdefghij", call_id="call_abcdefghij", arguments='{"city":"Paris"}')
    other = second.exchanges[0].response
    body = {**other.body, "id": "resp_2", "created_at": 5, "completed_at": 6}
    changed = second.exchanges[0].model_copy(update={"response": other.model_copy(update={"body": body})})
    assert compare(first, of(changed)) == []


def _stream(change: object = None) -> RecordedExchange:
    events = copy.deepcopy(SAMPLES["text"].build())
    return streamed("t", {}, events if change is None else change(events))  # type: ignore[operator]


def test_another_order_of_events_is_a_difference() -> None:
    def without_part(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [event for event in events if event["type"] != "response.content_part.added"]

    found = _places(of(_stream()), of(_stream(without_part)))
    assert found["protocol events after response.output_item.added"] == (
        "response.content_part.added",
        "nothing",
    )


def test_the_number_of_deltas_does_not_count() -> None:
    def cut(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        out = []
        for event in events:
            if event["type"].endswith("text.delta") and len(event["delta"]) > 1:
                out += [{**event, "delta": event["delta"][:1]}, {**event, "delta": event["delta"][1:]}]
            else:
                out.append(event)
        return [{**event, "sequence_number": number} for number, event in enumerate(out)]

    assert len(cut(_stream_events())) > len(_stream_events())
    assert compare(of(_stream()), of(_stream(cut))) == []
    assert order_of(_stream()) == order_of(_stream(cut))


def _stream_events() -> list[dict[str, Any]]:
    return copy.deepcopy(SAMPLES["text"].build())


def test_turns_are_paired_by_name() -> None:
    whole = conversation()
    short = of(whole.exchanges[1].model_copy(update={"after": None}))
    assert _places(whole, short) == {"turn ": ("a turn", "nothing")}
    renamed = of(
        *(each.model_copy(update={"turn": f"t{n}", "after": None}) for n, each in enumerate(whole.exchanges))
    )
    assert compare(whole, renamed) == []


def test_differences_without_words() -> None:
    said = of(exchange("t", {}, response("r", message("It is sunny."))))
    other = of(exchange("t", {}, response("r", message("Sun!"))))
    assert _places(said, other) == {"meaning text": ('"It is sunny."', '"Sun!"')}
    assert without_words(compare(said, other)) == []
    calls = of(exchange("t", {}, response("r", CALL)))
    assert any(each.layer == "meaning" for each in without_words(compare(said, calls)))


def test_the_command_prints_a_table_for_each_turn(tmp_path: Path) -> None:
    left, right = tmp_path / "a.yaml", tmp_path / "b.yaml"
    write(_call(), left, Redactor())
    write(_call(status=None), right, Redactor())
    result = CliRunner().invoke(app, ["compare", str(left), str(right)])
    assert result.exit_code == 1
    assert "turn ask" in result.output
    assert 'function_call.status  "completed" | null' in result.output
    same = CliRunner().invoke(app, ["compare", str(left), str(left)])
    assert (same.exit_code, "no difference" in same.output) == (0, True)


def test_a_merged_chunk_equals_two() -> None:
    """A busy server may send the last words and the finish reason in one chunk."""

    def chunk(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
        return {"type": "", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    words, end = chunk({"content": "Hi."}, None), chunk({}, "stop")
    apart, joined, turned = (
        order_of(streamed("t", {}, events))
        for events in ([words, end], [chunk({"content": "Hi."}, "stop")], [end, words])
    )
    assert apart == joined == ["delta of content", "delta of finish_reason"]
    assert turned != apart
    thoughts, both = chunk({"reasoning": "Hm."}, None), chunk({"content": "Hi.", "reasoning": "Hm."}, None)
    assert order_of(streamed("t", {}, [thoughts, words])) == order_of(streamed("t", {}, [both]))


def test_choices_of_a_stream_have_no_order_between_them() -> None:
    def order(*pieces: tuple[int, str]) -> list[str]:
        choices = [{"index": index, "delta": {key: "Hi."}} for index, key in pieces]
        return order_of(streamed("t", {}, [{"type": "", "choices": [each]} for each in choices]))

    told = ["delta of reasoning", "delta of content", "choice 1: delta of content"]
    assert order((0, "reasoning"), (0, "content"), (1, "content")) == told
    assert order((1, "content"), (0, "reasoning"), (0, "content"), (1, "content")) == told


def test_an_empty_chunk_may_be_merged_with_the_next() -> None:
    """This is true for calls in Chat Completions chunks, but not for events with a whole text."""

    def chunk(first: str, *arguments: str) -> list[dict[str, Any]]:
        begin = {"index": 0, "type": "function", "function": {"arguments": first}}
        calls = [begin, *({"index": 0, "function": {"arguments": each}} for each in arguments)]
        delta = [{"index": 0, "delta": {"tool_calls": [call]}} for call in calls]
        return [{"type": "", "object": "chat.completion.chunk", "choices": [each]} for each in delta]

    apart, joined = (facts(streamed("t", {}, events)) for events in (chunk("", "{}"), chunk("{}")))
    assert apart == joined
