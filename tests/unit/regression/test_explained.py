"""Failures by known defect."""

from __future__ import annotations

import dataclasses
import shlex
from functools import cache
from typing import Any

import pytest

from tests.screens import Screen
from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import DefectsError, load_defects
from vllm_harness._regression.cases.case import Group
from vllm_harness._regression.cases.groups import case_set
from vllm_harness._regression.cases.meanings import load_meanings
from vllm_harness._regression.engines.plan import Engine, planned
from vllm_harness._regression.results.cells import CaseResult, Cell
from vllm_harness._regression.results.explained import (
    ParserDefect,
    explain,
    known_elsewhere,
    parser_defects,
)
from vllm_harness._scripted.families import load_families
from vllm_harness._terminal.tables import plain_console
from vllm_harness.cli.regression_table import FAILURES, show_explained

ENTRY = Defect.model_validate(
    {
        "id": "lost",
        "title": "A call is lost",
        "class": "defect",
        "failures": [
            {
                "families": ["hermes"],
                "case": "call",
                "groups": ["canonical", "forced"],
                "deliveries": ["tokens_1"],
                "mismatches": ["call_lost"],
            }
        ],
    }
)


def known(**changes: Any) -> ParserDefect:
    """The entry with changes of its selector."""
    (selector,) = ENTRY.failures
    changed = ENTRY.model_copy(update={"failures": (selector.model_copy(update=changes),)})
    (made,) = parser_defects({ENTRY.id: changed})
    return made


LOST = known()


def cell(engine: str, mismatches: dict[str, tuple[str, ...]]) -> Cell:
    cases = {"call": CaseResult.model_validate({"topic": "calls", "mismatches": mismatches})}
    place = {"environment": "0.32.0", "described": "any", "family": "hermes", "group": "canonical"}
    parsers = {"tool_parser": "hermes", "reasoning_parser": None, "tokenizer": "synthetic"}
    return Cell.model_validate({**place, **parsers, "engine": engine, "cases_digest": "any", "cases": cases})


def test_a_failure_over_http_is_explained_by_what_explains_it_in_process() -> None:
    parsed = cell("in-process", {"tokens_1": ("call_lost",), "all": ("call_lost",)})
    served = cell("http", {"chat:tokens_1": ("call_lost", "text_lost")})
    explained = explain([LOST], [parsed, served])
    assert explained.counts == {"lost": {("0.32.0", "in-process"): 1, ("0.32.0", "http"): 1}}
    assert [
        (engine, failure.like.code, str(failure.mismatch)) for _, engine, failure in explained.unexplained
    ] == [
        ("in-process", "all", "call_lost"),
        ("http", "tokens_1", "text_lost"),
    ]


def test_tokens_that_a_server_joined_are_explained_by_what_explains_other_cuts() -> None:
    cuts = known(deliveries=("random_cuts",))
    served = cell("http", {"chat:tokens_1": ("call_lost",), "chat:whole": ("call_lost",)})
    parsed = cell("in-process", {"tokens_1": ("call_lost",)})
    explained = explain([cuts], [served, parsed])
    assert explained.counts == {"lost": {("0.32.0", "http"): 1}}
    assert [failure.delivery.code for _, _, failure in explained.unexplained] == ["chat:whole", "tokens_1"]


def test_an_error_of_a_cost_is_explained_by_what_explains_it_elsewhere() -> None:
    fails = known(groups=("canonical",), mismatches=("error:http_500", "time_superlinear"))
    mismatches = {"chat:tokens_1": ("error:http_500", "time_superlinear")}
    measured = cell("http", mismatches).model_copy(update={"group": "cost"})
    explained = explain([fails], [measured])
    assert explained.counts == {"lost": {("0.32.0", "http"): 1}}
    assert [str(failure.mismatch) for _, _, failure in explained.unexplained] == ["time_superlinear"]


def test_a_failure_of_rust_is_explained_by_a_defect_of_rust_alone() -> None:
    served = cell("http", {"chat:tokens_1": ("call_lost",)}).model_copy(update={"frontend": "rust"})
    assert explain([LOST], [served]).counts == {}
    entry = ENTRY.model_copy(update={"frontends": ("rust",)})
    in_rust = parser_defects({entry.id: entry})
    assert explain(in_rust, [served]).counts == {"lost": {("0.32.0", "http"): 1}}
    words = shlex.split(in_rust[0].selections[0].command)
    assert words[-6:] == ["--engine", "http", "--vllm", "0.33.0@0.32.0", "--frontends", "rust"]


def test_a_failure_that_is_known_of_another_family_is_told() -> None:
    of_another = known(families=("longcat", "dots"))
    run = [cell("in-process", {"tokens_1": ("call_lost", "text_lost")})]
    lost, text = (failure for _, _, failure in explain([of_another], run).unexplained)
    unnamed = known(families=("longcat", "dots"), mismatches=())
    assert known_elsewhere([unnamed, of_another, LOST], [lost, text]) == [(of_another, [lost])]
    screen = Screen(terminal=False)
    explained = explain([of_another], run)
    show_explained(plain_console(screen), [of_another], explained, every=False, commands=False)
    assert FAILURES in screen.lines
    (line,) = (line for line in screen.lines if line.startswith("1 failures of hermes resemble lost,"))
    assert "of longcat, dots:" in line.replace("\n", " ")


def test_two_defects_may_explain_one_failure() -> None:
    wide = dataclasses.replace(known(mismatches=()), defect=ENTRY.model_copy(update={"id": "wide"}))
    explained = explain([wide, LOST], [cell("in-process", {"tokens_1": ("call_lost", "text_lost")})])
    assert {each: sum(counts.values()) for each, counts in explained.counts.items()} == {"wide": 2, "lost": 1}
    assert not explained.unexplained


@pytest.mark.extra("costs")
def test_entries_name_families_and_cases_that_there_are() -> None:
    meanings = load_meanings()

    @cache
    def cases_of(group: Group, family: str, engine: Engine) -> set[str]:
        cases = planned(case_set(group, load_families()[family], meanings), engine)
        return {case.name for case in cases.cases}

    for each in parser_defects(load_defects()):
        for selection in each.selections:
            engine: Engine = "http" if selection.served else "in-process"
            for family in selection.families:
                assert cases_of(selection.groups[0], family, engine), each.id
            assert selection.case in cases_of(selection.groups[0], selection.families[0], engine), each.id


def test_no_entry_explains_whatever_goes_wrong_in_its_cases() -> None:
    every = (selection for each in parser_defects(load_defects()) for selection in each.selections)
    assert [selection for selection in every if not selection.mismatches] == []


def test_a_selector_of_one_kind_of_difference_explains_no_other() -> None:
    leaked, any_kind = known(mismatches=("text_differs:leaked",)), known(mismatches=("text_differs",))
    run = [cell("in-process", {"tokens_1": ("text_differs:leaked", "text_differs:lost", "text_differs")})]
    assert [str(failure.mismatch) for _, _, failure in explain([leaked], run).unexplained] == [
        "text_differs:lost",
        "text_differs",
    ]
    assert not explain([any_kind], run).unexplained


def test_a_selector_of_what_the_model_says_explains_no_case_that_says_otherwise() -> None:
    run = cell("in-process", {"tokens_1": ("call_lost",)})
    case = run.cases["call"].model_copy(update={"text": '{"s": "a\n</tool_call> b"}\n</tool_call>'})
    run = run.model_copy(update={"cases": {"call": case}})
    in_a_string = known(says='"[^"]*</tool_call>[^"]*"}')
    assert not explain([in_a_string], [run]).unexplained
    assert len(explain([known(says='"[^"]*<tool_call>')], [run]).unexplained) == 1
    assert not explain([known(says="a.</tool_call>")], [run]).unexplained


def test_an_unknown_word_of_a_selector_is_named() -> None:
    with pytest.raises(DefectsError, match=r"lost: failures: mismatches\.0: "):
        known(mismatches=("call_gone",))


def test_a_selection_is_shown_by_a_command() -> None:
    (selection,) = LOST.selections
    assert selection.command == "vllm-harness regression --parsers hermes --cases canonical --only call"
    (line_ends,) = known(case="call, it's\n<x> in a string", served=True).selections
    assert shlex.split(line_ends.command)[-3:] == ["call, it's\n<x> in a string", "--engine", "http"]


def test_a_selector_names_a_forced_case_without_what_forces_it() -> None:
    narrow = known(cases=("call",))
    forced = cell("in-process", {"tokens_1": ("call_lost",)})
    cases = {f"call, {how}": forced.cases["call"] for how in ("required", "named")}
    forced = forced.model_copy(update={"group": "forced", "cases": {**cases, "call": forced.cases["call"]}})
    explained = explain([narrow], [forced])
    assert explained.counts == {"lost": {("0.32.0", "in-process"): 2}}
