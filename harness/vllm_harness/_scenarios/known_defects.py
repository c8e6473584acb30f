"""Marks the problems that known defects of a turn explain, and reports defects that no longer show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import Defects, find
from vllm_harness._exchange.server import VllmServer
from vllm_harness._protocol import Finding
from vllm_harness._protocol.core.rules import KD101
from vllm_harness._scenarios.format import Scenario, Turn
from vllm_harness._scenarios.mismatches import TurnMismatch
from vllm_harness._scenarios.results import Conversation, TurnResult

Problem = TypeVar("Problem", Finding, TurnMismatch)


def named_defects(scenario: Scenario, registry: Defects, server: VllmServer) -> Defects:
    """Finds the defects that the turns of a scenario name and that hold for a server.

    Raises:
        DefectsError: the registry lacks a named defect.
    """
    named = {known.defect: find(known.defect, registry) for turn in scenario.turns for known in turn.known}
    version, model = server.vllm_version, server.entry.name
    return {id: defect for id, defect in named.items() if defect.holds_for(version, model)}


def mark(
    scenario: Scenario, conversations: Sequence[Conversation], defects: Defects, *, missing_on: str
) -> None:
    """Marks the mismatches and findings of all turns that the defects named by the turns explain.

    Args:
        scenario: the scenario, whose turns name the defects under `known`.
        conversations: the scenario over several transports; an interrupted one lacks its last turns.
        defects: the defects that hold for the server, as returned by `named_defects`.
        missing_on: the version of the server if every defect has to show, so that a missing one is a finding;
            empty if defects need not show, as for a model that is not scripted.
    """
    for conversation in conversations:
        label = conversation.transport.label
        for turn, result in zip(scenario.turns, conversation.turns, strict=False):
            mark_turn(turn, result, label, defects, missing_on=missing_on)


def mark_turn(turn: Turn, result: TurnResult, label: str, defects: Defects, *, missing_on: str) -> None:
    """Marks the problems of one turn over the transport with this label, as `mark` does."""
    if result.exchange is None:
        return
    for known in turn.known:
        if label in known.over and known.defect in defects:
            _mark(result, defects[known.defect], f"{label}, turn {turn.name}", missing_on)


def _mark(result: TurnResult, defect: Defect, place: str, missing_on: str) -> None:
    def marked(problem: Problem) -> Problem:
        if problem.known or not defect.shown_by(AssertionError(f"{place}: {problem}")):
            return problem
        return replace(problem, known=defect.id)

    result.mismatches = list(map(marked, result.mismatches))
    result.findings = list(map(marked, result.findings))
    if missing_on and defect.id not in result.known:
        result.findings.append(_missing(defect, missing_on))


def _missing(defect: Defect, version: str) -> Finding:
    reference = defect.upstream.reference or "not reported"
    return KD101.finding("$", defect.title, "nothing", code=defect.id, reference=reference, version=version)
