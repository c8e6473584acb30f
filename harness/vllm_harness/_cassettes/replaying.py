"""Replays a cassette: sends its requests again with the ids of the new run, and compares the answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from vllm_harness._cassettes import comparing
from vllm_harness._cassettes.answers import ERROR, answer_of, exchange_of, response_of
from vllm_harness._cassettes.comparing import TurnDifference
from vllm_harness._cassettes.format import Cassette, Recorded, RecordedExchange
from vllm_harness._cassettes.new_ids import NewIds
from vllm_harness._defects.registry import Defects, known_deviations
from vllm_harness._exchange.answer import Answer
from vllm_harness._exchange.sending import Outgoing, http_client, send
from vllm_harness._exchange.server import VllmServer
from vllm_harness._files.redaction import REDACTED
from vllm_harness._protocol import Finding, apply_known
from vllm_harness._protocol.captures import every_finding
from vllm_harness._scripted.book import BookRule, ScriptBook
from vllm_harness._scripted.in_server.vllm_harness_names import BOOK_HEADER
from vllm_harness._scripted.meaning import Meaning, ToolCall


@dataclass
class ReplayedExchange:
    """The result of replaying an exchange.

    Attributes:
        turn: the name of the turn.
        reason: why the turn was not replayed; empty if it was.
        exchange: the new exchange; None if the turn was not replayed.
        differences: the differences between the recorded and the new exchange.
        findings: the violations of API rules in the new exchange.
    """

    turn: str
    reason: str = ""
    exchange: RecordedExchange | None = None
    differences: list[TurnDifference] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def wrong(self) -> bool:
        """Whether the turn was not replayed, differs from the recording, or breaks a rule."""
        return bool(self.reason or self.differences) or any(each.counts for each in self.findings)


def replay(
    cassette: Cassette, server: VllmServer, defects: Defects | None = None
) -> Iterator[ReplayedExchange]:
    """Sends the requests of a cassette in order, and compares the answers with the recorded ones.

    Ids of responses, items and calls are replaced with those of the new run. On the scripted lane the model
    is scripted with the recording: with its tokens if the cassette contains them and the model entry is the
    same, otherwise with the meaning of its answers.

    Args:
        cassette: the cassette.
        server: the server.
        defects: the known defects of vLLM; by default the package's.

    Raises:
        DialectError: a recorded answer cannot be expressed in the format of the scripted model's family.
        BookError: the server does not accept scripts.
    """
    ids, same_model = NewIds(), cassette.recorded.model == server.entry.name
    known = known_deviations(server.entry.name, server.vllm_version, defects)
    with http_client(server.endpoint) as client:
        for recorded in cassette.exchanges:
            replayed = _play(recorded, server, ids, same_model, client)
            replayed.findings = apply_known(replayed.findings, known, server.vllm_version)
            yield replayed


def as_cassette(cassette: Cassette, played: Sequence[ReplayedExchange], recorded: Recorded) -> Cassette:
    """Makes a cassette of the replayed exchanges."""
    exchanges = tuple(each.exchange for each in played if each.exchange is not None)
    about = {"by": "replay", "scenario": cassette.recorded.scenario, "transport": cassette.recorded.transport}
    return Cassette(
        cassette=1,
        title=cassette.title,
        recorded=recorded.model_copy(update=about),
        exchanges=exchanges,
        count=len(exchanges),
    )


def objections(cassette: Cassette, server: VllmServer) -> list[str]:
    """Lists the ways, each in a sentence, in which a replay on this server may differ from the recording."""
    recorded, sentences = cassette.recorded, []
    if recorded.vllm and recorded.vllm != server.vllm_version:
        sentences.append(f"it was recorded from vLLM {recorded.vllm}, and this is {server.vllm_version}")
    if recorded.model and recorded.model != server.entry.name:
        sentences.append(f"it was recorded from the model {recorded.model}, and this is {server.entry.name}")
        if server.lane == "scripted" and any(exchange.tokens for exchange in cassette.exchanges):
            sentences.append("its tokens are those of another model, so their meaning is scripted instead")
    if any(REDACTED in str(exchange.request.body) for exchange in cassette.exchanges):
        sentences.append("secrets in its requests were redacted, so the requests differ")
    return sentences


def _play(
    recorded: RecordedExchange, server: VllmServer, ids: NewIds, same_model: bool, client: httpx2.Client
) -> ReplayedExchange:
    request, reason = ids.request(recorded)
    if reason:
        return ReplayedExchange(recorded.turn, reason)
    if isinstance(request.body, dict) and "model" in request.body:
        request = request.model_copy(update={"body": {**request.body, "model": server.model}})
    with _scripted(server, recorded, same_model) as headers:
        outgoing = Outgoing(server.endpoint, request.path, request.body, headers, method=request.method)
        exchange = send(client, outgoing)
    new = recorded.model_copy(update={"request": request, "response": response_of(exchange), "tokens": ()})
    differences = comparing.compared(recorded.turn, recorded, new)
    if server.lane != "scripted":
        differences = comparing.without_words(differences)
    ids.learn(recorded, new)
    return ReplayedExchange(recorded.turn, "", new, differences, every_finding(exchange))


@contextmanager
def _scripted(server: VllmServer, recorded: RecordedExchange, same_model: bool) -> Iterator[dict[str, str]]:
    """Yields the HTTP header that selects a book with the recorded answer; empty if nothing is scripted."""
    api = exchange_of(recorded).api
    takes = _takes(server, recorded, same_model) if server.lane == "scripted" and api else []
    if not takes:
        yield {}
        return
    book = ScriptBook(server.endpoint, server.entry)
    by_choice = api != "responses"
    book.add(BookRule(f"turn {recorded.turn}", tuple(takes), by_choice=by_choice, constrained=True))
    try:
        yield {BOOK_HEADER: book.name}
    finally:
        book.close()


def _takes(server: VllmServer, recorded: RecordedExchange, same_model: bool) -> list[Any]:
    if recorded.response.status >= ERROR:
        return ["not to be generated"]
    if recorded.tokens and same_model:
        return [list(ids) for ids in recorded.tokens]
    answer = answer_of(recorded)
    return [_meaning(answer, "reasoning" in server.entry.capabilities)] if answer else []


def _meaning(answer: Answer, thinks: bool) -> Meaning:
    calls = tuple(ToolCall(call.name, call.given) for call in answer.calls)
    text = answer.text if answer.text or not calls else None
    return Meaning.of(text, reasoning=answer.reasoning if thinks and answer.reasoning else None, calls=calls)
