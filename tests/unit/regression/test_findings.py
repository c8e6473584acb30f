"""Failures by root cause."""

from __future__ import annotations

import shlex
from functools import cache

from tests.screens import Screen
from vllm_harness.cli.regression_table import FAILURES, show_explained
from vllm_harness.regression.cases.case import Group
from vllm_harness.regression.cases.delivery import deliveries
from vllm_harness.regression.cases.groups import case_set
from vllm_harness.regression.cases.meanings import load_meanings
from vllm_harness.regression.engines.plan import planned
from vllm_harness.regression.results.cells import CaseResult, Cell
from vllm_harness.regression.results.findings import (
    ParserFinding,
    explain,
    known_elsewhere,
    load_findings,
)
from vllm_harness.scripted.families import load_families
from vllm_harness.terminal.tables import plain_console

FINDING = ParserFinding.model_validate(
    {
        "name": "lost",
        "verdict": "defect",
        "reference": "unreported",
        "versions": ("0.32.0",),
        "why": "any",
        "families": ("hermes",),
        "case": "call",
        "deliveries": ("tokens_1",),
        "mismatches": ("call_lost",),
    }
)


def cell(engine: str, mismatches: dict[str, tuple[str, ...]]) -> Cell:
    cases = {"call": CaseResult.model_validate({"topic": "calls", "mismatches": mismatches})}
    place = {"environment": "0.32.0", "described": "any", "family": "hermes", "group": "canonical"}
    parsers = {"tool_parser": "hermes", "reasoning_parser": None, "tokenizer": "synthetic"}
    return Cell.model_validate({**place, **parsers, "engine": engine, "cases_digest": "any", "cases": cases})


def test_a_failure_over_http_is_explained_by_what_explains_it_in_process() -> None:
    parsed = cell("in-process", {"tokens_1": ("call_lost",), "all": ("call_lost",)})
    served = cell("http", {"chat:tokens_1": ("call_lost", "text_lost")})
    explained = explain([FINDING], [parsed, served])
    assert explained.counts == {"lost": {("0.32.0", "in-process"): 1, ("0.32.0", "http"): 1}}
    assert [
        (engine, failure.like.code, str(failure.mismatch)) for _, engine, failure in explained.unexplained
    ] == [
        ("in-process", "all", "call_lost"),
        ("http", "tokens_1", "text_lost"),
    ]


def test_tokens_that_a_server_joined_are_explained_by_what_explains_other_cuts() -> None:
    cuts = FINDING.model_copy(update={"deliveries": deliveries("random_cuts")})
    served = cell("http", {"chat:tokens_1": ("call_lost",), "chat:whole": ("call_lost",)})
    parsed = cell("in-process", {"tokens_1": ("call_lost",)})
    explained = explain([cuts], [served, parsed])
    assert explained.counts == {"lost": {("0.32.0", "http"): 1}}
    assert [failure.delivery.code for _, _, failure in explained.unexplained] == ["chat:whole", "tokens_1"]


def test_a_failure_that_is_known_of_another_family_is_told() -> None:
    of_another = FINDING.model_copy(update={"families": ("longcat", "dots")})
    run = [cell("in-process", {"tokens_1": ("call_lost", "text_lost")})]
    lost, text = (failure for _, _, failure in explain([of_another], run).unexplained)
    unnamed = of_another.model_copy(update={"mismatches": ()})
    assert known_elsewhere([unnamed, of_another, FINDING], [lost, text]) == [(of_another, [lost])]
    screen = Screen(terminal=False)
    explained = explain([of_another], run)
    show_explained(plain_console(screen), [of_another], explained, every=False, commands=False)
    assert FAILURES in screen.lines
    (line,) = (
        line for line in screen.lines if line.startswith("of the failures of hermes, 1 are like 'lost'")
    )
    assert "of longcat, dots:" in line


def test_findings_name_families_and_cases_that_there_are() -> None:
    meanings = load_meanings()

    @cache
    def cases_of(group: Group, family: str) -> set[str]:
        cases = planned(case_set(group, load_families()[family], meanings), "in-process")
        return {case.name for case in cases.cases}

    for finding in load_findings():
        for family in finding.families:
            assert cases_of(finding.groups[0], family), finding.name
        assert finding.case in cases_of(finding.groups[0], finding.families[0]), finding.name


def test_every_finding_is_one_of_0_32_0_and_says_where_else_it_shows() -> None:
    known = ("0.30.0", "0.31.0", "0.32.0", "0.33.0@0.32.0")
    for finding in load_findings():
        assert "0.32.0" in finding.versions, finding.name
        assert set(finding.versions) <= set(known), finding.name


def test_a_finding_is_shown_by_a_command() -> None:
    line_ends = FINDING.model_copy(update={"case": "call, it's\n<x> in a string", "served": True})
    assert FINDING.command == "vllm-harness regression --parsers hermes --cases canonical --only call"
    assert shlex.split(line_ends.command)[-3:] == ["call, it's\n<x> in a string", "--engine", "http"]


def test_a_finding_names_a_forced_case_without_what_forces_it() -> None:
    narrow = FINDING.model_copy(update={"cases": ("call",)})
    forced = cell("in-process", {"tokens_1": ("call_lost",)})
    cases = {f"call, {how}": forced.cases["call"] for how in ("required", "named")}
    forced = forced.model_copy(update={"group": "forced", "cases": {**cases, "call": forced.cases["call"]}})
    explained = explain([narrow], [forced])
    assert explained.counts == {"lost": {("0.32.0", "in-process"): 2}}
