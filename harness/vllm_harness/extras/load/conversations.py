"""One conversation of a load: each turn is sent, read and judged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import aiohttp

from vllm_harness._defects.registry import Defects
from vllm_harness._exchange.answer import Answer, Call, answer_of, answer_to
from vllm_harness._exchange.building import PastTurn, Result, TurnInput, TurnRequest
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._exchange.sending import Outgoing
from vllm_harness._protocol import Exchange, Finding, KnownDeviation, validate_conversation
from vllm_harness._protocol.captures import every_finding
from vllm_harness._scenarios.format import Scenario, Turn
from vllm_harness._scenarios.history import ConversationHistory
from vllm_harness._scenarios.known_defects import mark_turn
from vllm_harness._scenarios.mismatches import TurnMismatch, mismatches, said_findings
from vllm_harness._scenarios.results import TurnResult
from vllm_harness._scenarios.tools import Toolbox, outcome_of, output_for
from vllm_harness._scenarios.transports import Transport
from vllm_harness._scripted.in_server.vllm_harness_names import BOOK_HEADER
from vllm_harness.extras.load.marks import TURN_HEADER, LoadScripts, marked, mixed_up
from vllm_harness.extras.load.plan import LoadShare, Plan
from vllm_harness.extras.load.streams import StreamResult, send_and_read

LEFT = "the client went away"
OF_OUTPUTS = "tool outputs"
"""What a mismatch is about if the scenario has no output for a call."""


@dataclass(frozen=True)
class LoadTurn:
    """A turn of a conversation, which was sent or skipped.

    Attributes:
        conversation: the conversation's number.
        transport: the transport that the conversation uses.
        turn: the scenario's turn.
        result: the result of the turn.
        stream: the answer; None if the turn was skipped.
        began_s: when the turn started, in seconds after the load's start.
        node: the cluster node that the client ran on; empty for this process.
    """

    conversation: int
    transport: Transport
    turn: Turn
    result: TurnResult
    stream: StreamResult | None
    began_s: float
    node: str = ""


@dataclass(frozen=True)
class ClientJob:
    """The work of a client, which is sent to the client's process.

    Attributes:
        scenario: the conversation to hold.
        plan: how often to hold it, and when.
        share: the conversations that this client holds.
        endpoint, model, version: the server, its model and its vLLM.
        scripts: what the scripted model says; None on the live lane.
        context: the model's context length, if it is known.
        known: vLLM's known deviations.
        named: the defects that the turns name and that apply to the server's vLLM, by id.
    """

    scenario: Scenario
    plan: Plan
    share: LoadShare
    endpoint: Endpoint
    model: str
    version: str
    scripts: LoadScripts | None
    context: int | None
    known: Sequence[KnownDeviation] = ()
    named: Defects = field(default_factory=dict)


@dataclass(frozen=True)
class Listener:
    """Callbacks for the results of conversations.

    Attributes:
        on_turn: receives each turn.
        on_findings: receives a conversation's number, its transport, and the findings between its turns.
        on_end: receives the number of each conversation that was completed.
    """

    on_turn: Callable[[LoadTurn], None]
    on_findings: Callable[[int, Transport, list[Finding]], None]
    on_end: Callable[[int], None] = lambda _: None


@dataclass(frozen=True)
class LoadContext:
    """The objects that all conversations of a client share.

    Attributes:
        job: the client's work.
        session: the HTTP session.
        started: the value of `time.perf_counter` at the start of the load.
        mark_known: marks a finding that is a known deviation of vLLM.
        listener: receives the results.
    """

    job: ClientJob
    session: aiohttp.ClientSession
    started: float
    mark_known: Callable[[Finding], Finding]
    listener: Listener

    @property
    def elapsed_s(self) -> float:
        """Seconds since the load started."""
        return time.perf_counter() - self.started


async def hold_conversation(context: LoadContext, number: int) -> None:
    """Holds a conversation, from its first turn to its last."""
    await _LoadConversation(context, number).hold()


class _LoadConversation:
    def __init__(self, context: LoadContext, number: int) -> None:
        self._context, self._job, self._number = context, context.job, number
        self._transport = context.job.plan.transport(number)
        self._history = ConversationHistory(context.job.scenario, context.job.plan.missing_tool_call)
        self._toolbox = Toolbox(context.job.scenario.tools, (), lambda name, arguments: None)
        self._exchanges: list[Exchange] = []

    async def hold(self) -> None:
        for turn in self._job.scenario.turns:
            began_s = self._context.elapsed_s
            result, stream = await self._run_turn(turn)
            self._history.add(turn, result)
            result.findings = [self._context.mark_known(finding) for finding in result.findings]
            if result.reason != LEFT:  # an incomplete answer shows neither a defect nor that it is fixed
                job, label = self._job, self._transport.label
                missing_on = job.version if job.scripts is not None else ""
                mark_turn(turn, result, label, job.named, missing_on=missing_on)
            load_turn = LoadTurn(self._number, self._transport, turn, result, stream, began_s)
            self._context.listener.on_turn(load_turn)
            result.exchange = None  # later turns do not need it
        if findings := validate_conversation(self._exchanges):
            marked_findings = [self._context.mark_known(finding) for finding in findings]
            self._context.listener.on_findings(self._number, self._transport, marked_findings)

    async def _run_turn(self, turn: Turn) -> tuple[TurnResult, StreamResult | None]:
        if reason := self._history.obstacle(turn):
            return TurnResult(turn.name, reason), None
        before, results = self._history.said_before(turn), []
        for call in before[-1].answer.open_calls if before else ():
            result = await self._tool_result(call)
            if result is None:
                actual = f"none for {call.name} with {call.arguments}"
                missing = TurnMismatch(OF_OUTPUTS, "an output of the scenario for each call", actual)
                return TurnResult(turn.name, mismatches=[missing]), None
            results.append(result)
        scripted = self._job.scripts is not None
        user = marked(turn.user, self._number) if scripted and turn.user and not before else turn.user
        turn_result = TurnResult(turn.name, sent=TurnInput(tuple(results), user))
        return turn_result, await self._exchange(turn, turn_result, before)

    async def _tool_result(self, call: Call) -> Result | None:
        tool = self._job.scenario.tools.get(call.name)
        output = output_for(tool, call.values) if tool and call.values is not None else None
        if output is None:
            return None
        if output.seconds:
            await asyncio.sleep(output.seconds)
        outcome = outcome_of(output)
        return Result(call.id, outcome.text, outcome.failed, outcome.images)

    async def _exchange(self, turn: Turn, result: TurnResult, before: list[PastTurn]) -> StreamResult:
        job, transport = self._job, self._transport
        assert result.sent is not None
        ask = TurnRequest(
            job.model,
            result.sent,
            tuple(before),
            job.scenario.instructions,
            self._toolbox.offered,
            tool_choice=turn.tool_choice,
            max_tokens=turn.max_tokens or job.scenario.max_tokens,
            context=job.context,
        )
        request = replace(transport, streamed=True).request(ask)
        outgoing = Outgoing(job.endpoint, transport.path, request, self._headers(turn))
        leaves_after = job.plan.leaves_after(self._number, turn.name)
        stream = await send_and_read(
            self._context.session, outgoing, transport.api, leaves_after=leaves_after
        )
        result.exchange = stream.exchange
        self._judge(turn, result, stream)
        return stream

    def _headers(self, turn: Turn) -> Mapping[str, str]:
        if self._job.scripts is None:
            return {}
        return {BOOK_HEADER: self._job.scripts.book, TURN_HEADER: turn.name}

    def _judge(self, turn: Turn, result: TurnResult, stream: StreamResult) -> None:
        exchange = stream.exchange
        result.findings += stream.findings
        if exchange.left:
            result.reason = LEFT
            return
        result.answer = _answer(stream, self._transport)
        if not exchange.streamed:
            result.findings += every_finding(exchange)
        result.mismatches += mismatches(turn.expect, exchange, result.answer)
        if self._job.scripts is not None:
            self._judge_words(turn, result, result.answer, self._job.scripts)
        self._exchanges.append(Exchange(exchange.request, stream.body, status=exchange.status))

    def _judge_words(self, turn: Turn, result: TurnResult, answer: Answer, scripts: LoadScripts) -> None:
        if mismatch := mixed_up(answer, self._number):
            result.mismatches.append(mismatch)
        meaning = scripts.meaning(turn, self._number)
        if meaning is not None and answer.status == "completed":
            place = f"$.{self._transport.name}.{turn.name}"
            result.findings += said_findings(meaning, answer, place, self._transport.name)


def _answer(stream: StreamResult, transport: Transport) -> Answer:
    if not stream.exchange.ok:
        return answer_to(stream.exchange) or Answer("failed")
    return Answer("failed") if stream.body is None else answer_of(transport.api, stream.body)
