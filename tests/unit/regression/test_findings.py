"""Failures by root cause."""

from __future__ import annotations

import shlex
from functools import cache

from vllm_harness.regression.cases.meanings import load_meanings
from vllm_harness.regression.cases.questions import questions
from vllm_harness.regression.results.findings import Finding, explain, load_findings
from vllm_harness.regression.results.results import CaseResult, Cell
from vllm_harness.scripted.families import load_families

FINDING = Finding(
    name="lost",
    verdict="true",
    reference="unreported",
    versions=("0.32.0",),
    why="any",
    families=("hermes",),
    case="call",
    ways=("1",),
    wrong=("call lost",),
)


def cell(engine: str, wrong: dict[str, tuple[str, ...]]) -> Cell:
    cases = {"call": CaseResult(topic="calls", wrong=wrong)}
    place = {"environment": "0.32.0", "described": "any", "family": "hermes", "group": "canonical"}
    parsers = {"tool_parser": "hermes", "reasoning_parser": None, "tokenizer": "synthetic"}
    return Cell.model_validate({**place, **parsers, "engine": engine, "asked": "any", "cases": cases})


def test_a_failure_over_http_is_explained_by_what_explains_it_in_process() -> None:
    parsed = cell("in-process", {"1": ("call lost",), "0": ("call lost",)})
    served = cell("http", {"chat stream": ("call lost", "text lost")})
    told = explain([FINDING], [parsed, served])
    assert told.seen == {"lost": {("0.32.0", "in-process"): 1, ("0.32.0", "http"): 1}}
    assert [(engine, failure.way, failure.wrong) for _, engine, failure in told.unexplained] == [
        ("in-process", "0", "call lost"),
        ("http", "1", "text lost"),
    ]


def test_findings_name_families_and_cases_that_there_are() -> None:
    meanings = load_meanings()

    @cache
    def cases_of(group: str, family: str) -> set[str]:
        asked = questions(group, load_families()[family], meanings, "in-process")
        return {question.case.name for question in asked.asked}

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
    assert FINDING.command == "vllm-harness matrix --parsers hermes --cases canonical --only call"
    assert shlex.split(line_ends.command)[-3:] == ["call, it's\n<x> in a string", "--engine", "http"]


def test_a_finding_names_a_forced_case_without_what_forces_it() -> None:
    narrow = FINDING.model_copy(update={"cases": ("call",)})
    forced = cell("in-process", {"1": ("call lost",)})
    cases = {f"call, {how}": forced.cases["call"] for how in ("required", "named")}
    forced = forced.model_copy(update={"group": "forced", "cases": {**cases, "call": forced.cases["call"]}})
    told = explain([narrow], [forced])
    assert told.seen == {"lost": {("0.32.0", "in-process"): 2}}
