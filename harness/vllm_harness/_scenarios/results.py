"""The results of a scenario, for each turn over each transport."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from vllm_harness._exchange.answer import Answer
from vllm_harness._exchange.building import PastTurn, TurnInput
from vllm_harness._protocol import Exchange, Finding, Severity
from vllm_harness._protocol.core.events import Json
from vllm_harness._runs.records import Outcome, case_outcome
from vllm_harness._scenarios.mismatches import TurnMismatch
from vllm_harness._scenarios.transports import Transport

State = Literal["passed", "failed", "known", "no call", "cancelled"]
_STATES: dict[Outcome, State] = {
    Outcome.PASSED: "passed",
    Outcome.FINDING: "failed",
    Outcome.KNOWN: "known",
    Outcome.SKIPPED: "no call",
    Outcome.CANCELLED: "cancelled",
}


@dataclass(frozen=True)
class Prompt:
    """The prompt of a turn, as token ids and as text."""

    ids: tuple[int, ...]
    text: str


@dataclass
class TurnResult:
    """The result of a turn.

    Attributes:
        turn: the name of the turn.
        reason: why it was cancelled, and so has no answer; empty if it was not.
        without_call: whether an expected call is missing, and the scenario allows it.
        mismatches: where the answer differs from what the scenario expects.
        findings: the findings of the API's rules, of the meaning and of the prompt.
        sent, answer: the meaning of the request and of the answer.
        exchange: the exchange; for a background response, its answer is the finished response.
        prompt: the prompt, if the model is scripted.
    """

    turn: str
    reason: str = ""
    without_call: bool = False
    mismatches: list[TurnMismatch] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    sent: TurnInput | None = None
    answer: Answer | None = None
    exchange: Exchange | None = None
    prompt: Prompt | None = None

    @property
    def problems(self) -> list[TurnMismatch | Finding]:
        """The mismatches and the findings."""
        return [*self.mismatches, *self.findings]

    @property
    def outcome(self) -> Outcome:
        """The outcome of the turn."""
        return case_outcome(self.problems, cancelled=bool(self.reason), skipped=self.without_call)

    @property
    def state(self) -> State:
        """The outcome, in the words that the reports of a scenario use."""
        return _STATES[self.outcome]

    @property
    def wrong(self) -> bool:
        """Whether something is wrong that no known defect explains."""
        return self.outcome is Outcome.FINDING

    @property
    def known(self) -> set[str]:
        """The known defects that the turn shows."""
        return {problem.known for problem in self.problems if problem.known}

    @property
    def said(self) -> PastTurn | None:
        """The turn as a part of the conversation; None if it has no answer that a turn can continue."""
        if self.sent is None or self.answer is None or self.answer.status in ("failed", "refused"):
            return None
        return PastTurn(self.sent, self.answer)

    def as_json(self) -> Json:
        """Converts the result to JSON for a report."""
        return {
            "turn": self.turn,
            "state": self.state,
            **({"reason": self.reason} if self.reason else {}),
            "answer": None if self.answer is None else self.answer.meaning(),
            "mismatches": [vars(mismatch) for mismatch in self.mismatches],
            "findings": [_finding(finding) for finding in self.findings],
        }


@dataclass
class Conversation:
    """The result of a scenario over one transport.

    Attributes:
        transport: the transport.
        turns: the results of the turns, in order.
        findings: the findings about the consistency between turns.
        attempts: the number of attempts; this is the result of the last one.
    """

    transport: Transport
    turns: list[TurnResult]
    findings: list[Finding] = field(default_factory=list)
    attempts: int = 1

    @property
    def wrong(self) -> bool:
        """Whether something is wrong that no known defect explains."""
        return any(turn.wrong for turn in self.turns) or any(finding.counts for finding in self.findings)

    @property
    def known(self) -> set[str]:
        """The known defects that the conversation shows."""
        between = {finding.known for finding in self.findings if finding.known}
        return between.union(*(turn.known for turn in self.turns))

    @property
    def every_finding(self) -> list[Finding]:
        """The findings of the turns, and those between turns."""
        return [*(finding for turn in self.turns for finding in turn.findings), *self.findings]

    def known_mismatches(self, turn: TurnResult) -> Iterator[Finding]:
        """Converts the mismatches of a turn that known defects explain to findings without a rule."""
        for each in turn.mismatches:
            if each.known:
                message = f"{self.transport.label}, turn {turn.turn}: {each}"
                yield Finding(
                    "", Severity.ERROR, None, each.what, message, each.expected, each.actual, known=each.known
                )

    def problems(self) -> Iterator[str]:
        """Describes everything that is wrong and that no known defect explains, one line each."""
        for turn in self.turns:
            for problem in turn.problems:
                if problem.counts:
                    yield f"{self.transport.label}, turn {turn.turn}: {problem}"
        for finding in self.findings:
            if finding.counts:
                yield f"{self.transport.label}: {finding}"

    def as_json(self) -> Json:
        """Converts the result to JSON for a report."""
        return {
            "transport": self.transport.label,
            "wrong": self.wrong,
            "attempts": self.attempts,
            "turns": [turn.as_json() for turn in self.turns],
            "findings": [_finding(finding) for finding in self.findings],
        }


def _finding(finding: Finding) -> dict[str, Any]:
    return {"text": str(finding), "code": finding.code, "path": finding.path, "known": finding.known}
