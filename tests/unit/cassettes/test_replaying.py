"""Replaying sends recorded requests with the ids of the new run, or says why it cannot send them."""

from __future__ import annotations

from tests.unit.cassettes.samples import CALL, conversation, exchange, message, of, response
from tests.unit.scenarios.servers import DescribedServer
from vllm_harness._cassettes.format import (
    Cassette,
    Recorded,
    RecordedExchange,
    RecordedRequest,
    RecordedResponse,
)
from vllm_harness._cassettes.new_ids import NewIds
from vllm_harness._cassettes.replaying import ReplayedExchange, as_cassette, objections
from vllm_harness._configuration.model_entries import load_models

ENTRY = load_models().get("qwen3")
LIVE = DescribedServer(ENTRY, "live")


NEW_CALL = {**CALL, "id": "fc_new", "call_id": "call_new"}


def _second(cassette: Cassette, new: RecordedExchange) -> tuple[RecordedRequest, str]:
    """Returns the second exchange's request after `new` answered the first, and any objection to it."""
    ids = NewIds()
    first, reason = ids.request(cassette.exchanges[0])
    assert (first, reason) == (cassette.exchanges[0].request, "")
    ids.learn(cassette.exchanges[0], new)
    return ids.request(cassette.exchanges[1])


def test_requests_have_the_ids_of_the_new_run() -> None:
    cassette = conversation()
    request, reason = _second(cassette, exchange("ask", {}, response("resp_new", NEW_CALL)))
    assert reason == ""
    assert request.body["previous_response_id"] == "resp_new"
    assert request.body["input"][0]["call_id"] == "call_new"
    assert request.body["tools"] == cassette.exchanges[1].request.body["tools"]


def test_a_call_that_is_not_made_again_cannot_be_answered() -> None:
    _, reason = _second(conversation(), exchange("ask", {}, response("resp_new", message("No."))))
    assert reason == "it is about a call of get_weather, which was not made now in turn ask"


def test_turns_cannot_continue_a_refused_turn() -> None:
    refused = RecordedResponse(status=400, body={"error": {"message": "no"}})
    new = conversation().exchanges[0].model_copy(update={"response": refused})
    _, reason = _second(conversation(), new)
    assert "turn ask" in reason
    assert "HTTP 400" in reason


def test_a_sent_history_has_the_new_ids() -> None:
    history = [{"role": "user", "content": "Weather?"}, CALL]
    output = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
    cassette = of(
        exchange("ask", {"input": "Weather?"}, response("resp_1", CALL)),
        exchange("answer", {"input": [*history, output]}, response("resp_2", message("Sunny."))),
    )
    request, _ = _second(cassette, exchange("ask", {}, response("resp_new", NEW_CALL)))
    assert request.body["input"] == [history[0], NEW_CALL, {**output, "call_id": "call_new"}]


def test_a_path_has_the_new_id() -> None:
    first = exchange("ask", {"input": "Hi"}, response("resp_1", message("Hi")))
    get = RecordedRequest(method="GET", path="/v1/responses/resp_1?x=1")
    again = RecordedExchange(turn="get", request=get, response=first.response)
    request, _ = _second(of(first, again), exchange("ask", {}, response("resp_new", message("Hi"))))
    assert request.path == "/v1/responses/resp_new?x=1"


def test_the_cassette_of_a_replay() -> None:
    cassette = conversation(scenario="weather")
    played = [
        ReplayedExchange("ask", exchange=cassette.exchanges[0]),
        ReplayedExchange("answer", reason="no"),
    ]
    assert [each.wrong for each in played] == [False, True]
    again = as_cassette(cassette, played, Recorded(model="qwen3"))
    assert [each.turn for each in again.exchanges] == ["ask"]
    assert (again.recorded.by, again.recorded.scenario, again.recorded.model) == (
        "replay",
        "weather",
        "qwen3",
    )


def test_objections() -> None:
    cassette = conversation(vllm="0.30.0", model="gpt-oss")
    tokens = cassette.exchanges[0].model_copy(update={"tokens": ((1, 2),)})
    assert objections(of(tokens, vllm="0.30.0", model="gpt-oss"), DescribedServer(ENTRY)) == [
        "it was recorded from vLLM 0.30.0, and this is 0.32.0",
        "it was recorded from the model gpt-oss, and this is qwen3",
        "its tokens are those of another model, so their meaning is scripted instead",
    ]
    assert objections(conversation(vllm="0.32.0", model="qwen3"), LIVE) == []
