"""Converts conversations of scenarios to cassettes."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_harness._cassettes.answers import response_of
from vllm_harness._cassettes.format import (
    Cassette,
    Recorded,
    RecordedExchange,
    RecordedRequest,
    ToolOutput,
)
from vllm_harness._scenarios.format import Scenario
from vllm_harness._scenarios.results import Conversation, TurnResult

JSON_TYPE = {"content-type": "application/json"}


def of_conversation(
    scenario: Scenario,
    conversation: Conversation,
    recorded: Recorded,
    tokens: Sequence[Sequence[Sequence[int]] | None] = (),
) -> Cassette:
    """Makes the cassette of a conversation, without its cancelled turns.

    Args:
        scenario: the scenario.
        conversation: the conversation that the scenario produced.
        recorded: the description of the server.
        tokens: the generated token ids for each turn that was answered; empty if they are unknown.
    """
    answered = [turn for turn in conversation.turns if turn.exchange is not None]
    names = {turn.turn for turn in answered}
    generated = list(tokens) if len(tokens) == len(answered) else [None] * len(answered)
    exchanges = []
    for turn, ids in zip(answered, generated, strict=True):
        parent = scenario.parent(next(each for each in scenario.turns if each.name == turn.turn))
        after = parent.name if parent and parent.name in names else None
        exchanges.append(_exchange(turn, after, conversation.transport.path, ids or ()))
    about = {"by": "scenario", "transport": conversation.transport.label}
    return Cassette(
        cassette=1,
        title=scenario.title,
        recorded=recorded.model_copy(update=about),
        exchanges=tuple(exchanges),
        count=len(exchanges),
    )


def _exchange(
    turn: TurnResult, after: str | None, path: str, tokens: Sequence[Sequence[int]]
) -> RecordedExchange:
    assert turn.exchange is not None
    assert turn.sent is not None
    return RecordedExchange(
        turn=turn.turn,
        after=after,
        outputs=tuple(
            ToolOutput(call=result.call_id, output=result.text, failed=result.failed)
            for result in turn.sent.results
        ),
        request=RecordedRequest(path=path, headers=dict(JSON_TYPE), body=dict(turn.exchange.request)),
        response=response_of(turn.exchange),
        tokens=tuple(map(tuple, tokens)),
    )
