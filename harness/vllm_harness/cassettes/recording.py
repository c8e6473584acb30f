"""Conversations of scenarios as cassettes."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_harness.cassettes.answers import response_of, text_of
from vllm_harness.cassettes.format import Cassette, Chunk, Exchange, Recorded, Request, Response, ToolOutput
from vllm_harness.scenarios.format import Scenario
from vllm_harness.scenarios.results import Conversation, TurnResult
from vllm_harness.scenarios.sending import Reply

JSON_TYPE = {"content-type": "application/json"}


def of_conversation(
    scenario: Scenario,
    conversation: Conversation,
    recorded: Recorded,
    tokens: Sequence[Sequence[Sequence[int]] | None] = (),
) -> Cassette:
    """The cassette of a conversation; turns that were cancelled are not in it.

    Args:
        scenario: what was held.
        conversation: what became of it.
        recorded: of the server.
        tokens: what was generated, as token ids, for each turn that was answered; none: not recorded.
    """
    answered = [turn for turn in conversation.turns if turn.reply is not None]
    names = {turn.turn for turn in answered}
    generated = list(tokens) if len(tokens) == len(answered) else [None] * len(answered)
    exchanges = []
    for turn, ids in zip(answered, generated, strict=True):
        above = scenario.parent(next(each for each in scenario.turns if each.name == turn.turn))
        after = above.name if above and above.name in names else None
        exchanges.append(_exchange(turn, after, conversation.transport.path, ids or ()))
    about = {"by": "scenario", "transport": conversation.transport.label}
    return Cassette(
        cassette=1,
        title=scenario.title,
        recorded=recorded.model_copy(update=about),
        exchanges=tuple(exchanges),
        count=len(exchanges),
    )


def _exchange(turn: TurnResult, after: str | None, path: str, tokens: Sequence[Sequence[int]]) -> Exchange:
    assert turn.reply is not None
    assert turn.sent is not None
    return Exchange(
        turn=turn.turn,
        after=after,
        outputs=tuple(
            ToolOutput(call=each.call_id, output=each.text, failed=each.failed) for each in turn.sent.results
        ),
        request=Request(path=path, headers=dict(JSON_TYPE), body=turn.request),
        response=of_reply(turn.reply),
        tokens=tuple(map(tuple, tokens)),
    )


def of_reply(reply: Reply) -> Response:
    """An answer as it came."""
    chunks = [Chunk(at=chunk.at_s, data=text_of(chunk.data)) for chunk in reply.chunks]
    headers = {"content-type": reply.content_type} if reply.content_type else {}
    return response_of(reply.status, headers, chunks, reply.broken)
