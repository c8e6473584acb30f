"""Defects of vLLM that a turn is said to show: what is wrong because of one, and one that no longer shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import Defects, find
from vllm_harness._protocol import Finding
from vllm_harness._protocol.core.rules import KD101
from vllm_harness._scenarios.conversation import Served
from vllm_harness._scenarios.format import Scenario, Turn
from vllm_harness._scenarios.judging import TurnMismatch
from vllm_harness._scenarios.results import Conversation, TurnResult

Problem = TypeVar("Problem", Finding, TurnMismatch)


def named(scenario: Scenario, registry: Defects) -> Defects:
    """The defects that turns are said to show, by id. Raises DefectsError where the registry lacks one."""
    return {each.defect: find(each.defect, registry) for turn in scenario.turns for each in turn.known}


def mark(scenario: Scenario, served: Served, conversations: Sequence[Conversation], defects: Defects) -> None:
    """Marks what is wrong with turns because of defects that they are said to show, `known` in the scenario.

    One that a scripted model's server should show, and does not, is a finding of its own.
    """
    for conversation in conversations:
        label = conversation.transport.label
        for turn, result in zip(scenario.turns, conversation.turns, strict=True):
            mark_turn(turn, result, label, served, defects)


def mark_turn(turn: Turn, result: TurnResult, label: str, served: Served, defects: Defects) -> None:
    """Does so for a turn over the transport of this label."""
    if result.exchange is not None:
        for defect in _of(turn, label, served, defects):
            _mark(result, defect, f"{label}, turn {turn.name}", served)


def _of(turn: Turn, label: str, served: Served, defects: Defects) -> list[Defect]:
    named = [defects[each.defect] for each in turn.known if label in each.over]
    return [defect for defect in named if defect.holds_for(served.version, served.entry.name)]


def _mark(result: TurnResult, defect: Defect, place: str, served: Served) -> None:
    def marked(problem: Problem) -> Problem:
        if problem.known or not defect.shown_by(AssertionError(f"{place}: {problem}")):
            return problem
        result.tied += (defect.id,)
        return replace(problem, known=defect.id)

    result.mismatches = list(map(marked, result.mismatches))
    result.findings = list(map(marked, result.findings))
    if served.scripted and defect.id not in result.tied:
        result.findings.append(_gone(defect, served.version))


def _gone(defect: Defect, version: str) -> Finding:
    reference = defect.upstream.reference or "not reported"
    return KD101.finding("$", defect.title, "nothing", code=defect.id, reference=reference, version=version)
