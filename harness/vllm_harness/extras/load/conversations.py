"""One conversation of a load: its turns, each asked, heard and judged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import aiohttp

from vllm_harness._exchange.answer import Answer, Call, answer_of, answer_to
from vllm_harness._exchange.building import Ask, Result, Said, Sent
from vllm_harness._exchange.sending import Outgoing
from vllm_harness._protocol import Exchange, Finding, validate_conversation
from vllm_harness._protocol.captures import every_finding
from vllm_harness._scenarios import judging
from vllm_harness._scenarios.conversation import Served
from vllm_harness._scenarios.course import Course
from vllm_harness._scenarios.format import Scenario, Turn
from vllm_harness._scenarios.judging import TurnMismatch
from vllm_harness._scenarios.results import TurnResult
from vllm_harness._scenarios.tools import Toolbox, outcome_of, output_for
from vllm_harness._scenarios.transports import Transport
from vllm_harness._scripted.in_server.vllm_harness_names import BOOK_HEADER
from vllm_harness.extras.load.marks import TURN_HEADER, LoadScripts, marked, mixed
from vllm_harness.extras.load.plan import Plan
from vllm_harness.extras.load.streams import StreamResult, hear

LEFT = "the client went away"
OF_OUTPUTS = "tool outputs"


@dataclass(frozen=True)
class LoadTurn:
    """A turn that was taken, or left out.

    Attributes:
        conversation: its number.
        transport: over which.
        turn: of the scenario.
        result: what became of it.
        heard: the answer; None where the turn was left out.
        began_s: seconds after the load's start.
        node: of a cluster, where its client ran.
    """

    conversation: int
    transport: Transport
    turn: Turn
    result: TurnResult
    heard: StreamResult | None
    began_s: float
    node: str = ""


@dataclass(frozen=True)
class LoadContext:
    """What all conversations of a load share.

    Attributes:
        scenario, plan, served: what is held, how, and where.
        scripts: what the model says; None where it says what it likes.
        context: length of the model's context, where it is known.
        session: of the connections.
        started: when the load began, by `time.perf_counter`.
        known: marks findings that are known of vLLM.
        tied: marks what is wrong with a turn because of the defects that the scenario says it shows, over the
            transport of a label.
        taken: receives each turn.
        between: receives what is wrong between the turns of a conversation: its number, over which transport.
    """

    scenario: Scenario
    plan: Plan
    served: Served
    scripts: LoadScripts | None
    context: int | None
    session: aiohttp.ClientSession
    started: float
    known: Callable[[Finding], Finding]
    tied: Callable[[Turn, TurnResult, str], None]
    taken: Callable[[LoadTurn], None]
    between: Callable[[int, Transport, list[Finding]], None]

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started


async def talk(setting: LoadContext, number: int) -> None:
    """Holds a conversation, from its first turn to its last."""
    await _Conversation(setting, number).hold()


class _Conversation:
    def __init__(self, setting: LoadContext, number: int) -> None:
        self._setting, self._number = setting, number
        self._transport = setting.plan.transport(number)
        self._course = Course(setting.scenario, setting.plan.missing_tool_call)
        self._toolbox = Toolbox(setting.scenario.tools, (), lambda name, arguments: None)
        self._exchanges: list[Exchange] = []

    async def hold(self) -> None:
        for turn in self._setting.scenario.turns:
            began_s = self._setting.elapsed_s
            result, heard = await self._take(turn)
            self._course.note(turn, result)
            result.findings = [self._setting.known(each) for each in result.findings]
            if result.reason != LEFT:  # what a client did not wait for shows no defect, and none that is gone
                self._setting.tied(turn, result, self._transport.label)
            self._setting.taken(LoadTurn(self._number, self._transport, turn, result, heard, began_s))
            result.exchange = None  # only what later turns need is kept
        if found := validate_conversation(self._exchanges):
            findings = [self._setting.known(each) for each in found]
            self._setting.between(self._number, self._transport, findings)

    async def _take(self, turn: Turn) -> tuple[TurnResult, StreamResult | None]:
        if reason := self._course.why_not(turn):
            return TurnResult(turn.name, reason), None
        line, results = self._course.line(turn), []
        for call in line[-1].answer.open_calls if line else ():
            result = await self._output(call)
            if result is None:
                actual = f"none for {call.name} with {call.arguments}"
                missing = TurnMismatch(OF_OUTPUTS, "an output of the scenario for each call", actual)
                return TurnResult(turn.name, mismatches=[missing]), None
            results.append(result)
        scripted = self._setting.scripts is not None
        user = marked(turn.user, self._number) if scripted and turn.user and not line else turn.user
        taken = TurnResult(turn.name, sent=Sent(tuple(results), user))
        return taken, await self._exchange(turn, taken, line)

    async def _output(self, call: Call) -> Result | None:
        tool = self._setting.scenario.tools.get(call.name)
        output = output_for(tool, call.values) if tool and call.values is not None else None
        if output is None:
            return None
        if output.seconds:
            await asyncio.sleep(output.seconds)
        outcome = outcome_of(output)
        return Result(call.id, outcome.text, outcome.failed, outcome.images)

    async def _exchange(self, turn: Turn, result: TurnResult, line: list[Said]) -> StreamResult:
        setting, transport = self._setting, self._transport
        assert result.sent is not None
        ask = Ask(
            setting.served.model,
            result.sent,
            tuple(line),
            setting.scenario.instructions,
            self._toolbox.offered,
            tool_choice=turn.tool_choice,
            max_tokens=turn.max_tokens or setting.scenario.max_tokens,
            context=setting.context,
        )
        request = replace(transport, streamed=True).request(ask)
        outgoing = Outgoing(setting.served.endpoint, transport.path, request, self._headers(turn))
        leaves_after = setting.plan.leaves_after(self._number, turn.name)
        heard = await hear(setting.session, outgoing, transport.api, leaves_after=leaves_after)
        result.exchange = heard.exchange
        self._judge(turn, result, heard)
        return heard

    def _headers(self, turn: Turn) -> Mapping[str, str]:
        if self._setting.scripts is None:
            return {}
        return {BOOK_HEADER: self._setting.scripts.book, TURN_HEADER: turn.name}

    def _judge(self, turn: Turn, result: TurnResult, heard: StreamResult) -> None:
        exchange = heard.exchange
        result.findings += heard.findings
        if exchange.left:
            result.reason = LEFT
            return
        result.answer = _answer(heard, self._transport)
        if not exchange.streamed:
            result.findings += every_finding(exchange)
        result.mismatches += judging.mismatches(turn.expect, exchange, result.answer)
        if self._setting.scripts is not None:
            self._judge_words(turn, result, result.answer, self._setting.scripts)
        self._exchanges.append(Exchange(exchange.request, heard.body, status=exchange.status))

    def _judge_words(self, turn: Turn, result: TurnResult, answer: Answer, scripts: LoadScripts) -> None:
        if other := mixed(answer, self._number):
            result.mismatches.append(other)
        meaning = scripts.meaning(turn, self._number)
        if meaning is not None and answer.status == "completed":
            place = f"$.{self._transport.name}.{turn.name}"
            result.findings += judging.said_findings(meaning, answer, place, self._transport.name)


def _answer(heard: StreamResult, transport: Transport) -> Answer:
    if not heard.exchange.ok:
        return answer_to(heard.exchange) or Answer("failed")
    return Answer("failed") if heard.body is None else answer_of(transport.api, heard.body)
