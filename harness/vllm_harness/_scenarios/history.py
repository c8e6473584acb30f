"""The history of a conversation: its turns so far, and whether the next turn can be sent."""

from __future__ import annotations

from vllm_harness._exchange.building import PastTurn
from vllm_harness._scenarios.format import MissingToolCall, Scenario, Turn
from vllm_harness._scenarios.mismatches import CALLS
from vllm_harness._scenarios.results import TurnResult


class ConversationHistory:
    """The results of the turns of a conversation so far.

    Args:
        scenario: the conversation.
        missing_tool_call: what to do if an expected call is missing; by default what the scenario says.

    Attributes:
        results: the results by turn name.
    """

    def __init__(self, scenario: Scenario, missing_tool_call: MissingToolCall | None = None) -> None:
        self.results: dict[str, TurnResult] = {}
        self._scenario = scenario
        self._missing = missing_tool_call or scenario.missing_tool_call
        self._stopped = ""

    def obstacle(self, turn: Turn) -> str:
        """Says why a turn cannot be sent; empty if it can."""
        parent = self._scenario.parent(turn)
        if self._stopped or parent is None:
            return self._stopped
        before = self.results[parent.name]
        if before.said is None:
            return f"it continues turn {parent.name}, which has no answer to go on from"
        answer = before.said.answer
        if not turn.user and parent.expect.calls and not (answer.open_calls or answer.approvals):
            return f"it sends outputs alone, and turn {parent.name} made no call"
        return ""

    def said_before(self, turn: Turn) -> list[PastTurn]:
        """Lists what was said in the ancestors of a turn, beginning with the first."""
        results = [self.results[ancestor.name].said for ancestor in self._scenario.ancestors(turn)]
        return [said for said in results if said is not None]

    def said_elsewhere(self, before: list[PastTurn]) -> list[PastTurn]:
        """Lists what was said in all turns except the given ones."""
        others = [said for result in self.results.values() if (said := result.said) is not None]
        return [said for said in others if said not in before]

    def add(self, turn: Turn, result: TurnResult) -> None:
        """Adds the result of a turn, and handles missing calls as the scenario says."""
        self.results[turn.name] = result
        if not lacks_calls(turn, result) or self._server_calls_all(turn):
            return
        if self._missing != "ignore_continue":
            self._stopped = f"turn {turn.name} made no call ({self._missing})"
        if self._missing != "error_stop":
            result.without_call = True
            result.mismatches = [each for each in result.mismatches if each.what != CALLS]

    def _server_calls_all(self, turn: Turn) -> bool:
        """Whether the server itself makes all calls of a turn, so that no later turn has to answer them."""
        return all(call.name in self._scenario.of_server for call in turn.expect.calls or ())


def lacks_calls(turn: Turn, result: TurnResult) -> bool:
    """Whether a turn expects calls and was answered without any."""
    return bool(turn.expect.calls) and result.said is not None and not result.said.answer.calls
