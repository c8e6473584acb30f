"""Runs one conversation: the turns of a scenario over one transport, each checked when it is answered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import httpx2
import requests

from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._exchange.answer import Answer, answer_to
from vllm_harness._exchange.building import PastTurn, Result, TurnInput, TurnRequest
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.sending import Outgoing, http_client, send
from vllm_harness._exchange.server import VllmServer
from vllm_harness._protocol import validate_conversation
from vllm_harness._protocol.captures import every_finding
from vllm_harness._protocol.core.differences import common_length
from vllm_harness._protocol.core.findings import brief
from vllm_harness._scenarios import background, prompts
from vllm_harness._scenarios.format import Scenario, Turn
from vllm_harness._scenarios.history import ConversationHistory
from vllm_harness._scenarios.mismatches import TurnMismatch, mismatches, said_findings
from vllm_harness._scenarios.results import Conversation, Prompt, TurnResult
from vllm_harness._scenarios.tools import Toolbox, with_tokens
from vllm_harness._scenarios.transports import Transport
from vllm_harness._scripted.book import BookRule, Plain, ScriptBook, ScriptError
from vllm_harness._scripted.book_file import SaySpec
from vllm_harness._scripted.in_server.vllm_harness_names import BOOK_HEADER
from vllm_harness._scripted.meaning import Meaning, Reasoning
from vllm_harness._terminal.status import Progress


def converse(
    conversation: Conversation, scenario: Scenario, server: VllmServer, toolbox: Toolbox, progress: Progress
) -> None:
    """Runs a conversation once, or again.

    Args:
        conversation: the transport; receives the result of each turn when the turn ends.
        scenario: what is said.
        server: the server.
        toolbox: runs the tools that the model calls.
        progress: receives a line at the start of each turn.

    Raises:
        DialectError: the model's family cannot express what a turn says.
        BookError: the server does not accept scripts, or does not answer.
    """
    transport, turns = conversation.transport, conversation.turns
    turns.clear()
    runner = _TurnRunner(scenario, server, transport, toolbox)
    with http_client(server.endpoint) as client:
        for number, turn in enumerate(scenario.turns, 1):
            progress(f"{transport.label}: turn {number} of {len(scenario.turns)}, {turn.name}")
            turns.append(result := runner.run(turn, client))
            runner.history.add(turn, result)
    exchanges = [exchange for turn in turns if (exchange := turn.exchange) is not None]
    conversation.findings = validate_conversation(exchanges)


class _TurnRunner:
    def __init__(
        self, scenario: Scenario, server: VllmServer, transport: Transport, toolbox: Toolbox
    ) -> None:
        self.history = ConversationHistory(scenario)
        self._scenario, self._server = scenario, server
        self._transport, self._toolbox = transport, toolbox
        self._context = context_of(server.endpoint) if transport.api == "messages" else None

    def run(self, turn: Turn, client: httpx2.Client) -> TurnResult:
        if reason := self.history.obstacle(turn):
            return TurnResult(turn.name, reason)
        before = self.history.said_before(turn)
        results = []
        for call in before[-1].answer.open_calls if before else ():
            output = None if call.values is None else self._toolbox.run(call.name, call.values)
            if output is None:
                actual = f"none for {call.name} with {call.arguments}"
                missing = TurnMismatch("tool outputs", "an output of the scenario for each call", actual)
                return TurnResult(turn.name, mismatches=[missing])
            results.append(Result(call.id, *output))
        approved = before[-1].answer.approvals if before else ()
        result = TurnResult(turn.name, sent=TurnInput(tuple(results), turn.user, approved))
        self._exchange(turn, result, before, client)
        return result

    def _exchange(
        self, turn: Turn, result: TurnResult, before: list[PastTurn], client: httpx2.Client
    ) -> None:
        assert result.sent is not None
        request = self._transport.request(self._ask(turn, before, result.sent))
        outgoing = Outgoing(self._server.endpoint, self._transport.path, request)
        if self._server.lane != "scripted":
            self._send(turn, result, client, outgoing)
            return
        with _book_of(turn, self._server) as (book, meaning):
            self._send(turn, result, client, replace(outgoing, headers={BOOK_HEADER: book.name}))
            self._check_script(turn, result, book)
            if result.said:
                self._check_meaning(turn, result, meaning)
                self._check_outputs(turn, result, book)
                self._check_prompt(turn, result, before, book)

    def _send(self, turn: Turn, result: TurnResult, client: httpx2.Client, outgoing: Outgoing) -> None:
        exchange = send(client, outgoing)
        if turn.background:
            exchange = background.ended(client, outgoing, exchange)
        result.exchange, result.answer = exchange, answer_to(exchange) or Answer("failed")
        result.mismatches += mismatches(turn.expect, exchange, result.answer)
        result.findings += every_finding(exchange)
        if turn.background and exchange.streamed:
            result.mismatches += background.replayed(client, outgoing, exchange.json_events)

    def _ask(self, turn: Turn, before: list[PastTurn], sent: TurnInput) -> TurnRequest:
        toolbox = with_tokens(self._toolbox, turn.sends)
        return TurnRequest(
            self._server.model,
            sent,
            tuple(before),
            self._scenario.instructions,
            toolbox.offered,
            toolbox.of_server,
            turn.tool_choice,
            turn.max_tokens or self._scenario.max_tokens,
            self._context,
            turn.background,
        )

    def _check_script(self, turn: Turn, result: TurnResult, book: ScriptBook) -> None:
        if result.mismatches:
            return
        if turn.expect.status == "refused":
            if any(use["generations"] for use in book.report()["uses"]):
                started = TurnMismatch("refusal", "before the model says anything", "its script had begun")
                result.mismatches.append(started)
        elif turn.expect.status != "failed":
            try:
                book.verify()
            except ScriptError as error:
                result.mismatches.append(TurnMismatch("script", "followed to its end", error.message))

    def _check_meaning(self, turn: Turn, result: TurnResult, meaning: Meaning | None) -> None:
        assert result.answer is not None
        if meaning is not None and result.answer.status == "completed":
            result.findings += said_findings(meaning, result.answer, self._place(turn), self._transport.label)

    def _check_outputs(self, turn: Turn, result: TurnResult, book: ScriptBook) -> None:
        """Checks the outputs of the server's tools: the text that the last prompt adds to the first one."""
        expected = [
            (number, call.output) for number, call in enumerate(turn.expect.calls or ()) if call.output
        ]
        if not expected:
            return
        generations = book.prompts()
        first, last = generations[0], generations[-1]
        added = book.decode(last[common_length(first, last) :]) if len(generations) > 1 else ""
        for number, predicate in expected:
            if objection := predicate.objection(added):
                place = f"calls[{number}].output"
                result.mismatches.append(TurnMismatch(place, f"a text {objection}", brief(added)))

    def _check_prompt(self, turn: Turn, result: TurnResult, before: list[PastTurn], book: ScriptBook) -> None:
        assert result.sent is not None
        if not (generations := book.prompts()):
            return
        ids = generations[0]
        result.prompt = Prompt(tuple(ids), book.decode(ids))
        text, path = result.prompt.text, f"{self._place(turn)}.prompt"
        elements = prompts.elements_of(before, result.sent)
        others = prompts.elements_of(self.history.said_elsewhere(before), TurnInput((), ()))
        result.findings += prompts.lost(text, elements, path)
        result.findings += prompts.foreign(text, elements, others, path)

    def _place(self, turn: Turn) -> str:
        return f"$.{self._transport.label}.{turn.name}"


@contextmanager
def _book_of(turn: Turn, server: VllmServer) -> Iterator[tuple[ScriptBook, Meaning | None]]:
    """Yields a script book for a turn, and what the script means if it is a single meaning."""
    takes = [take_of(spec, server.entry) for spec in turn.say]
    book = ScriptBook(server.endpoint, server.entry)
    book.add(
        BookRule(
            f"turn {turn.name}",
            tuple(takes),
            by_choice=len(takes) == 1,
            constrained=True,  # without the whitespace that a model may put around a call
            expect="cut" if turn.expect.status == "incomplete" else "done",
            keep_prompt=True,
        )
    )
    try:
        yield book, takes[0] if len(takes) == 1 and isinstance(takes[0], Meaning) else None
    finally:
        book.close()


def take_of(spec: SaySpec, entry: ModelEntry) -> Plain:
    """Makes the script of a `say`, without reasoning if the model has no reasoning parser."""
    said = spec.as_say()
    if isinstance(said, Meaning) and "reasoning" not in entry.capabilities:
        return Meaning(tuple(part for part in said.parts if not isinstance(part, Reasoning)))
    return said


def context_of(endpoint: Endpoint) -> int | None:
    """The model's context length from vLLM's list of models; None if the list does not contain it."""
    try:
        answer = endpoint.get("/v1/models", timeout=10)
        length = answer.json()["data"][0]["max_model_len"]
    except (requests.RequestException, LookupError, TypeError, ValueError):
        return None
    return length if isinstance(length, int) else None
