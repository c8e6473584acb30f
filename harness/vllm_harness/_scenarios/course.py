"""The course of a conversation: what became of its turns so far, and what that means for the next."""

from __future__ import annotations

from vllm_harness._exchange.building import Said
from vllm_harness._scenarios import judging
from vllm_harness._scenarios.format import MissingToolCall, Scenario, Turn
from vllm_harness._scenarios.results import TurnResult


class Course:
    """The turns of a conversation, as they are taken.

    Args:
        scenario: the conversation.
        missing_tool_call: what becomes of it where an expected call does not come; by default as the scenario
            says.

    Attributes:
        results: of the turns so far, by name.
    """

    def __init__(self, scenario: Scenario, missing_tool_call: MissingToolCall | None = None) -> None:
        self.results: dict[str, TurnResult] = {}
        self._scenario = scenario
        self._missing = missing_tool_call or scenario.missing_tool_call
        self._stopped = ""

    def why_not(self, turn: Turn) -> str:
        """Why a turn cannot be asked; empty where it can."""
        above = self._scenario.parent(turn)
        if self._stopped or above is None:
            return self._stopped
        before = self.results[above.name]
        if before.said is None:
            return f"it continues turn {above.name}, which has no answer to go on from"
        answer = before.said.answer
        if not turn.user and above.expect.calls and not (answer.open_calls or answer.approvals):
            return f"it sends outputs alone, and turn {above.name} made no call"
        return ""

    def line(self, turn: Turn) -> list[Said]:
        """What was said in the turns that a turn continues, from the first."""
        results = [self.results[each.name].said for each in self._scenario.line(turn)]
        return [said for said in results if said is not None]

    def beside(self, line: list[Said]) -> list[Said]:
        """What was said in the turns so far that are not of a line."""
        others = [said for each in self.results.values() if (said := each.said) is not None]
        return [said for said in others if said not in line]

    def note(self, turn: Turn, result: TurnResult) -> None:
        """Notes what became of a turn; where expected calls did not come, as the scenario wants it."""
        self.results[turn.name] = result
        if not lacks_calls(turn, result) or self._of_server(turn):
            return
        if self._missing != "ignore_continue":
            self._stopped = f"turn {turn.name} made no call ({self._missing})"
        if self._missing != "error_stop":
            result.without_call = True
            result.mismatches = [each for each in result.mismatches if each.what != judging.CALLS]

    def _of_server(self, turn: Turn) -> bool:
        """Whether the server makes all calls of a turn by itself, and no later turn has to answer any."""
        return all(call.name in self._scenario.of_server for call in turn.expect.calls or ())


def lacks_calls(turn: Turn, result: TurnResult) -> bool:
    """Whether a turn expects calls, and was answered without any."""
    return bool(turn.expect.calls) and result.said is not None and not result.said.answer.calls
