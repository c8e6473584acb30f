"""What became of a scenario: of each turn, over each transport."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from vllm_harness._exchange.answer import Answer
from vllm_harness._exchange.building import Said, Sent
from vllm_harness._protocol import Exchange, Finding, Severity
from vllm_harness._protocol.core.events import Json
from vllm_harness._scenarios.judging import TurnMismatch
from vllm_harness._scenarios.transports import Transport

State = Literal["passed", "failed", "known", "no call", "cancelled"]


@dataclass(frozen=True)
class Prompt:
    """What the model was given for a turn, as token ids and as their text."""

    ids: tuple[int, ...]
    text: str


@dataclass
class TurnResult:
    """What became of a turn.

    Attributes:
        turn: its name.
        reason: why it was cancelled, and so has no answer; else empty.
        without_call: no call came, and the scenario does not mind.
        mismatches: where the answer is not as expected.
        findings: of the API's rules, of its meaning and of its prompt; known ones are marked.
        sent, answer: as meanings.
        exchange: as it was; of a response in the background, its answer is that it had ended.
        tied: defects that the scenario says it shows, and that it shows.
        prompt: where the harness told the model what to say.
    """

    turn: str
    reason: str = ""
    without_call: bool = False
    mismatches: list[TurnMismatch] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    sent: Sent | None = None
    answer: Answer | None = None
    exchange: Exchange | None = None
    tied: tuple[str, ...] = ()
    prompt: Prompt | None = None

    @property
    def wrong(self) -> bool:
        """Whether something is not as it should be, and nobody knew of it."""
        return any(not each.known for each in self.mismatches) or any(
            finding.counts for finding in self.findings
        )

    @property
    def state(self) -> State:
        """What it counts as."""
        if self.reason:
            return "cancelled"
        if self.wrong:
            return "failed"
        if self.tied:
            return "known"
        return "no call" if self.without_call else "passed"

    @property
    def said(self) -> Said | None:
        """The turn as a part of a conversation; None where there is no answer to go on from."""
        if self.sent is None or self.answer is None or self.answer.status in ("failed", "refused"):
            return None
        return Said(self.sent, self.answer)

    def as_json(self) -> Json:
        """For a report."""
        return {
            "turn": self.turn,
            "state": self.state,
            **({"reason": self.reason} if self.reason else {}),
            "answer": None if self.answer is None else self.answer.meaning(),
            "mismatches": [vars(each) for each in self.mismatches],
            "findings": [_finding(each) for each in self.findings],
        }


@dataclass
class Conversation:
    """What became of a scenario over one transport.

    Attributes:
        transport: over which it was held.
        turns: in the scenario's order.
        findings: between its turns.
        attempts: how many were made; this is the last.
    """

    transport: Transport
    turns: list[TurnResult]
    findings: list[Finding] = field(default_factory=list)
    attempts: int = 1

    @property
    def wrong(self) -> bool:
        """Whether something is not as it should be, and nobody knew of it."""
        return any(turn.wrong for turn in self.turns) or any(each.counts for each in self.findings)

    @property
    def known(self) -> set[str]:
        """The defects of vLLM that show."""
        found = {finding.known for finding in self.every_finding if finding.known}
        return found.union(*(turn.tied for turn in self.turns))

    @property
    def every_finding(self) -> list[Finding]:
        """Those of the turns, and those between them."""
        return [*(finding for turn in self.turns for finding in turn.findings), *self.findings]

    def known_mismatches(self, turn: TurnResult) -> Iterator[Finding]:
        """What is not as a turn expects because of a defect that it names, as findings of no rule."""
        for each in turn.mismatches:
            if each.known:
                message = f"{self.transport.label}, turn {turn.turn}: {each}"
                yield Finding(
                    "", Severity.ERROR, None, each.what, message, each.expected, each.actual, known=each.known
                )

    def problems(self) -> Iterator[str]:
        """What is wrong, and nobody knew of it, a line each."""
        for turn in self.turns:
            for mismatch in turn.mismatches:
                if not mismatch.known:
                    yield f"{self.transport.label}, turn {turn.turn}: {mismatch}"
            for finding in turn.findings:
                if finding.counts:
                    yield f"{self.transport.label}, turn {turn.turn}: {finding}"
        for finding in self.findings:
            if finding.counts:
                yield f"{self.transport.label}: {finding}"

    def as_json(self) -> Json:
        """For a report."""
        return {
            "transport": self.transport.label,
            "wrong": self.wrong,
            "attempts": self.attempts,
            "turns": [turn.as_json() for turn in self.turns],
            "findings": [_finding(each) for each in self.findings],
        }


def _finding(finding: Finding) -> dict[str, Any]:
    return {"text": str(finding), "code": finding.code, "path": finding.path, "known": finding.known}
