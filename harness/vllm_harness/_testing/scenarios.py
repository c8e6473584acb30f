"""Scenarios in tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from vllm_harness._exchange.server import VllmServer
from vllm_harness._scenarios.format import Scenario
from vllm_harness._scenarios.mcp_servers import RunningMcp
from vllm_harness._scenarios.reading import find_scenario, read_scenario
from vllm_harness._scenarios.results import Conversation, TurnResult
from vllm_harness._scenarios.running import BOTH, check_capabilities, run, transports_of
from vllm_harness._testing.cases import note
from vllm_harness._testing.content import UnexpectedContent
from vllm_harness._testing.session import result_of, the_run
from vllm_harness._testing.skips import NOT_SERVED, skip


@dataclass(frozen=True)
class ScenarioRunner:
    """Runs scenarios on the server of a test; what is found goes into the record of its target."""

    server: VllmServer
    item: pytest.Item

    def __call__(
        self,
        scenario: str | Path | Scenario,
        *,
        transports: Sequence[str] = (),
        streamed: Sequence[bool] = BOTH,
        mcp: Mapping[str, RunningMcp] | None = None,
    ) -> list[Conversation]:
        """Runs a scenario.

        Args:
            scenario: a file, relative to the test's, or the name of one of the package's stories.
            transports: `responses`, `responses-history`, `chat`, `messages`; by default all.
            streamed: whether the answers are streamed; by default each conversation is held both ways.
            mcp: the scenario's MCP servers, where they run already.

        Returns:
            What became of each conversation.

        Raises:
            AssertionError: something is not as it should be, and nobody knew of it. On the live lane
                `UnexpectedContent` where only the model's words are not as expected, and no turn forbids
                retries.
            UsageError: the file is no scenario, or the model cannot do what it asks for.
        """
        read = scenario if isinstance(scenario, Scenario) else self._read(scenario)
        hint = "mark the test with pytest.mark.vllm_needs and these names"
        check_capabilities(read, self.server.entry, scripted=self.server.lane == "scripted", hint=hint)
        over = transports_of(transports, streamed)
        defects = the_run(self.item.config).defects
        conversations = run(read, self.server, over, defects=defects, mcp=mcp)
        for conversation in conversations:
            self._note(conversation)
        if not any(turn.exchange for each in conversations for turn in each.turns):
            skip(NOT_SERVED, "this server serves none of the scenario's transports")
        self._raise(read, conversations)
        return conversations

    def _note(self, conversation: Conversation) -> None:
        """Puts what was found, known mismatches too, into the record of the target and the test's case."""
        record = result_of(self.item)
        record.add(conversation.every_finding)
        for turn in conversation.turns:
            tied = list(conversation.known_mismatches(turn))
            note(self.item, [*turn.findings, *tied], answer_of(turn))
            for each in tied:
                record.defects.setdefault(each.known, {}).setdefault(self.item.nodeid, each.message)
        note(self.item, conversation.findings)

    def _read(self, name: str | Path) -> Scenario:
        beside = self.item.path.parent / name
        return read_scenario(beside if beside.exists() else find_scenario(str(name)))

    def _raise(self, scenario: Scenario, conversations: Sequence[Conversation]) -> None:
        problems = [problem for each in conversations for problem in each.problems()]
        if not problems:
            return
        strict = {turn.name for turn in scenario.turns if turn.expect.retries == "none"}
        wrong = [turn for each in conversations for turn in each.turns if turn.wrong]
        of_content = self.server.lane != "scripted" and not any(
            finding.counts for each in conversations for finding in each.every_finding
        )
        again = of_content and not any(turn.turn in strict for turn in wrong)
        raise (UnexpectedContent if again else AssertionError)("\n".join(problems))


def answer_of(turn: TurnResult) -> str:
    """By what the exchange of a turn is found: the id of its answer, or what the server refused it with."""
    if turn.answer is None or turn.exchange is None:
        return ""
    if turn.answer.status == "refused":
        return turn.exchange.content.decode("utf-8", "replace")
    return turn.answer.id
