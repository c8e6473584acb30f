"""One conversation: the turns of a scenario over one transport, each judged as soon as it is answered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self

import httpx2
import requests

from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._exchange.answer import Answer, answer_to
from vllm_harness._exchange.building import Ask, Result, Said, Sent
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.sending import Outgoing, http_client, send
from vllm_harness._exchange.server import VllmServer
from vllm_harness._protocol import validate_conversation
from vllm_harness._protocol.captures import every_finding
from vllm_harness._protocol.core.differences import common_length
from vllm_harness._protocol.core.findings import brief
from vllm_harness._scenarios import background, judging, prompts
from vllm_harness._scenarios.course import Course
from vllm_harness._scenarios.format import Scenario, Turn
from vllm_harness._scenarios.judging import TurnMismatch
from vllm_harness._scenarios.results import Conversation, Prompt, TurnResult
from vllm_harness._scenarios.tools import Toolbox, with_tokens
from vllm_harness._scenarios.transports import Transport
from vllm_harness._scripted.book import BookRule, Plain, ScriptBook, ScriptError
from vllm_harness._scripted.book_file import SaySpec
from vllm_harness._scripted.in_server.vllm_harness_names import BOOK_HEADER
from vllm_harness._scripted.meaning import Meaning, Reasoning
from vllm_harness._terminal.status import Progress, quiet


@dataclass(frozen=True)
class Served:
    """A server that scenarios run on.

    Attributes:
        endpoint: its address.
        model: the name that it serves.
        entry: the model entry.
        version: of its vLLM.
        scripted: whether its model says what it is told.
    """

    endpoint: Endpoint
    model: str
    entry: ModelEntry
    version: str
    scripted: bool

    @classmethod
    def by(cls, server: VllmServer) -> Self:
        """What a server serves."""
        scripted = server.lane == "scripted"
        return cls(server.endpoint, server.model, server.entry, server.vllm_version, scripted)


def converse(
    scenario: Scenario, served: Served, transport: Transport, toolbox: Toolbox, tell: Progress = quiet
) -> Conversation:
    """Holds a conversation once.

    Args:
        scenario: the conversation.
        served: the server.
        transport: to hold it over.
        toolbox: answers the calls.
        tell: receives a line as each turn begins.

    Raises:
        DialectError: the model's family cannot express what a turn says.
        BookError: the server takes no scripts, or does not answer.
    """
    talk = _Talk(scenario, served, transport, toolbox)
    with http_client() as client:
        for number, turn in enumerate(scenario.turns, 1):
            tell(f"{transport.label}: turn {number} of {len(scenario.turns)}, {turn.name}")
            talk.course.note(turn, talk.take(turn, client))
    turns = list(talk.course.results.values())
    exchanges = [exchange for turn in turns if (exchange := turn.exchange) is not None]
    return Conversation(transport, turns, validate_conversation(exchanges))


class _Talk:
    def __init__(self, scenario: Scenario, served: Served, transport: Transport, toolbox: Toolbox) -> None:
        self.course = Course(scenario)
        self._scenario, self._served = scenario, served
        self._transport, self._toolbox = transport, toolbox
        self._context = context_of(served.endpoint) if transport.api == "messages" else None

    def take(self, turn: Turn, client: httpx2.Client) -> TurnResult:
        """A turn's result."""
        if reason := self.course.why_not(turn):
            return TurnResult(turn.name, reason)
        line = self.course.line(turn)
        results = []
        for call in line[-1].answer.open_calls if line else ():
            output = None if call.values is None else self._toolbox.run(call.name, call.values)
            if output is None:
                actual = f"none for {call.name} with {call.arguments}"
                missing = TurnMismatch("tool outputs", "an output of the scenario for each call", actual)
                return TurnResult(turn.name, mismatches=[missing])
            results.append(Result(call.id, *output))
        approved = line[-1].answer.approvals if line else ()
        result = TurnResult(turn.name, sent=Sent(tuple(results), turn.user, approved))
        self._exchange(turn, result, line, client)
        return result

    def _exchange(self, turn: Turn, result: TurnResult, line: list[Said], client: httpx2.Client) -> None:
        assert result.sent is not None
        request = self._transport.request(self._ask(turn, line, result.sent))
        outgoing = Outgoing(self._served.endpoint, self._transport.path, request)
        if not self._served.scripted:
            self._send(turn, result, client, outgoing)
            return
        with _told(turn, self._served) as (book, meaning):
            self._send(turn, result, client, replace(outgoing, headers={BOOK_HEADER: book.name}))
            self._judge_script(turn, result, book)
            if result.said:
                self._judge_meaning(turn, result, meaning)
                self._judge_outputs(turn, result, book)
                self._judge_prompt(turn, result, line, book)

    def _send(self, turn: Turn, result: TurnResult, client: httpx2.Client, outgoing: Outgoing) -> None:
        exchange = send(client, outgoing)
        if turn.background:
            exchange = background.ended(client, outgoing, exchange)
        result.exchange, result.answer = exchange, answer_to(exchange) or Answer("failed")
        result.mismatches += judging.mismatches(turn.expect, exchange, result.answer)
        result.findings += every_finding(exchange)
        if turn.background and exchange.streamed:
            result.mismatches += background.replayed(client, outgoing, exchange.json_events)

    def _ask(self, turn: Turn, line: list[Said], sent: Sent) -> Ask:
        toolbox = with_tokens(self._toolbox, turn.sends)
        return Ask(
            self._served.model,
            sent,
            tuple(line),
            self._scenario.instructions,
            toolbox.offered,
            toolbox.of_server,
            turn.tool_choice,
            turn.max_tokens or self._scenario.max_tokens,
            self._context,
            turn.background,
        )

    def _judge_script(self, turn: Turn, result: TurnResult, book: ScriptBook) -> None:
        if result.mismatches:
            return
        if turn.expect.status == "refused":
            if any(use["generations"] for use in book.report()["uses"]):
                begun = TurnMismatch("refusal", "before the model says anything", "its script had begun")
                result.mismatches.append(begun)
        elif turn.expect.status != "failed":
            try:
                book.verify()
            except ScriptError as error:
                result.mismatches.append(TurnMismatch("script", "followed to its end", error.message))

    def _judge_meaning(self, turn: Turn, result: TurnResult, meaning: Meaning | None) -> None:
        assert result.answer is not None
        if meaning is not None and result.answer.status == "completed":
            result.findings += judging.said_findings(
                meaning, result.answer, self._place(turn), self._transport.label
            )

    def _judge_outputs(self, turn: Turn, result: TurnResult, book: ScriptBook) -> None:
        """What tools of the server's own gave, by what the model's last prompt has beyond its first."""
        wanted = [(number, each.output) for number, each in enumerate(turn.expect.calls or ()) if each.output]
        if not wanted:
            return
        generations = book.prompts()
        first, last = generations[0], generations[-1]
        added = book.decode(last[common_length(first, last) :]) if len(generations) > 1 else ""
        for number, predicate in wanted:
            if objection := predicate.objection(added):
                place = f"calls[{number}].output"
                result.mismatches.append(TurnMismatch(place, f"a text {objection}", brief(added)))

    def _judge_prompt(self, turn: Turn, result: TurnResult, line: list[Said], book: ScriptBook) -> None:
        assert result.sent is not None
        if not (generations := book.prompts()):
            return
        ids = generations[0]
        result.prompt = Prompt(tuple(ids), book.decode(ids))
        text, path = result.prompt.text, f"{self._place(turn)}.prompt"
        elements = prompts.elements_of(line, result.sent)
        beside = prompts.elements_of(self.course.beside(line), Sent((), ()))
        result.findings += prompts.lost(text, elements, path)
        result.findings += prompts.foreign(text, elements, beside, path)

    def _place(self, turn: Turn) -> str:
        return f"$.{self._transport.label}.{turn.name}"


@contextmanager
def _told(turn: Turn, served: Served) -> Iterator[tuple[ScriptBook, Meaning | None]]:
    """A book with what the model says in a turn, and its meaning, where it is one meaning."""
    takes = [take_of(spec, served.entry) for spec in turn.say]
    book = ScriptBook(served.endpoint, served.entry)
    book.add(
        BookRule(
            f"turn {turn.name}",
            tuple(takes),
            by_choice=len(takes) == 1,
            constrained=True,  # without blanks that a model may put around a call
            expect="cut" if turn.expect.status == "incomplete" else "done",
            keep_prompt=True,
        )
    )
    try:
        yield book, takes[0] if len(takes) == 1 and isinstance(takes[0], Meaning) else None
    finally:
        book.close()


def take_of(spec: SaySpec, entry: ModelEntry) -> Plain:
    """What is said; a model without a reasoning parser does not think."""
    said = spec.as_say()
    if isinstance(said, Meaning) and "reasoning" not in entry.capabilities:
        return Meaning(tuple(part for part in said.parts if not isinstance(part, Reasoning)))
    return said


def context_of(endpoint: Endpoint) -> int | None:
    """The length of the model's context, as vLLM tells it in its list of models."""
    try:
        answer = endpoint.get("/v1/models", timeout=10)
        length = answer.json()["data"][0]["max_model_len"]
    except (requests.RequestException, LookupError, TypeError, ValueError):
        return None
    return length if isinstance(length, int) else None
