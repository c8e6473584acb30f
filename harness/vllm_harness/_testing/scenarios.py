"""The fixture `scenario`."""

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
    """The fixture `scenario`: runs scenarios on the server of a test.

    Attributes:
        server: the server of the test.
        item: the test; findings are added to the result of its target.
    """

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
            scenario: a file, relative to the test's folder, or the name of one of the package's stories.
            transports: `responses`, `responses-history`, `chat`, `messages`; by default all.
            streamed: whether the answers are streamed; by default each conversation runs both ways.
            mcp: the scenario's MCP servers, if they are already running.

        Returns:
            The result of each conversation.

        Raises:
            AssertionError: a finding or a mismatch is not known. On the live lane, if only the model's words
                are wrong and no turn forbids retries, the test runs again.
            UsageError: the file is not a scenario, or the model lacks a capability that the scenario needs.
        """
        parsed = scenario if isinstance(scenario, Scenario) else self._read(scenario)
        hint = "mark the test with pytest.mark.vllm_needs and these names"
        check_capabilities(parsed, self.server.entry, scripted=self.server.lane == "scripted", hint=hint)
        over = transports_of(transports, streamed)
        defects = the_run(self.item.config).defects
        conversations = run(parsed, self.server, over, defects=defects, mcp=mcp)
        for conversation in conversations:
            self._record(conversation)
        if not any(turn.exchange for conversation in conversations for turn in conversation.turns):
            skip(NOT_SERVED, "this server serves none of the scenario's transports")
        self._raise(parsed, conversations)
        return conversations

    def _record(self, conversation: Conversation) -> None:
        """Adds findings and known mismatches to the target's result and to the test's case record."""
        record = result_of(self.item)
        record.add(conversation.every_finding)
        for turn in conversation.turns:
            known = list(conversation.known_mismatches(turn))
            note(self.item, [*turn.findings, *known], answer_of(turn))
            for mismatch in known:
                record.defects.setdefault(mismatch.known, {}).setdefault(self.item.nodeid, mismatch.message)
        note(self.item, conversation.findings)

    def _read(self, name: str | Path) -> Scenario:
        beside = self.item.path.parent / name
        return read_scenario(beside if beside.exists() else find_scenario(str(name)))

    def _raise(self, scenario: Scenario, conversations: Sequence[Conversation]) -> None:
        problems = [problem for conversation in conversations for problem in conversation.problems()]
        if not problems:
            return
        strict = {turn.name for turn in scenario.turns if turn.expect.retries == "none"}
        findings = (finding for conversation in conversations for finding in conversation.every_finding)
        retry = (
            self.server.lane != "scripted"
            and not any(finding.counts for finding in findings)
            and not any(turn.wrong and turn.turn in strict for held in conversations for turn in held.turns)
        )
        raise (UnexpectedContent if retry else AssertionError)("\n".join(problems))


def answer_of(turn: TurnResult) -> str:
    """A string that identifies the exchange of a turn: the id of its answer, or the body of a refusal."""
    if turn.answer is None or turn.exchange is None:
        return ""
    if turn.answer.status == "refused":
        return turn.exchange.content.decode("utf-8", "replace")
    return turn.answer.id
