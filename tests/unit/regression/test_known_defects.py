"""The known defects that explain failures."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

import pytest

from tests.screens import Screen
from tests.unit.regression.named_cases import missing_cases
from vllm_harness._defects.entry import Defect
from vllm_harness._defects.registry import DefectsError, load_defects
from vllm_harness._regression.results.cells import CaseResult, Cell
from vllm_harness._regression.results.known_defects import (
    ParserDefect,
    explain,
    known_elsewhere,
    parser_defects,
)
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
    """The defect of `ENTRY` with a changed selector."""
    (selector,) = ENTRY.failures
    changed = ENTRY.model_copy(update={"failures": (selector.model_copy(update=changes),)})
    (defect,) = parser_defects({ENTRY.id: changed})
    return defect


LOST = known()


def cell(engine: str, mismatches: dict[str, tuple[str, ...]]) -> Cell:
    cases = {"call": CaseResult.model_validate({"topic": "calls", "mismatches": mismatches})}
    place = {"environment": "0.32.0", "described": "any", "family": "hermes", "group": "canonical"}
    parsers = {"tool_parser": "hermes", "reasoning_parser": None, "tokenizer": "synthetic"}
    return Cell.model_validate({**place, **parsers, "engine": engine, "cases_digest": "any", "cases": cases})


def test_a_selector_in_process_explains_failures_over_http() -> None:
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


def test_a_canonical_error_explains_an_error_of_a_cost() -> None:
    fails = known(groups=("canonical",), mismatches=("error:http_500", "time_superlinear"))
    mismatches = {"chat:tokens_1": ("error:http_500", "time_superlinear")}
    measured = cell("http", mismatches).model_copy(update={"group": "cost"})
    explained = explain([fails], [measured])
    assert explained.counts == {"lost": {("0.32.0", "http"): 1}}
    assert [str(failure.mismatch) for _, _, failure in explained.unexplained] == ["time_superlinear"]


def test_a_failure_of_rust_needs_a_defect_of_rust() -> None:
    served = cell("http", {"chat:tokens_1": ("call_lost",)}).model_copy(update={"frontend": "rust"})
    assert explain([LOST], [served]).counts == {}
    entry = ENTRY.model_copy(update={"frontends": ("rust",)})
    in_rust = parser_defects({entry.id: entry})
    assert explain(in_rust, [served]).counts == {"lost": {("0.32.0", "http"): 1}}
    words = shlex.split(in_rust[0].selections[0].command)
    assert words[-6:] == ["--engine", "http", "--vllm", "0.33.0@0.32.0", "--frontends", "rust"]


def test_similar_defects_of_other_families_are_shown() -> None:
    elsewhere = known(families=("longcat", "dots"))
    run = [cell("in-process", {"tokens_1": ("call_lost", "text_lost")})]
    lost, text = (failure for _, _, failure in explain([elsewhere], run).unexplained)
    unnamed = known(families=("longcat", "dots"), mismatches=())
    assert known_elsewhere([unnamed, elsewhere, LOST], [lost, text]) == [(elsewhere, [lost])]
    screen = Screen(terminal=False)
    explained = explain([elsewhere], run)
    show_explained(plain_console(screen), [elsewhere], explained, every=False, commands=False)
    assert FAILURES in screen.lines
    (line,) = (line for line in screen.lines if line.startswith("1 failures of hermes resemble lost,"))
    assert "for longcat, dots:" in line.replace("\n", " ")


def test_similar_defects_of_the_same_parser_come_first() -> None:
    """`qwen3_thinking` has the tool parser of hermes."""
    other, same = known(families=("longcat",), cases=("call",)), known(families=("qwen3_thinking",))
    run = [cell("in-process", {"tokens_1": ("call_lost",)})]
    failures = [failure for _, _, failure in explain([other, same], run).unexplained]
    assert [defect for defect, _ in known_elsewhere([other, same], failures)] == [same, other]


def test_two_defects_may_explain_one_failure() -> None:
    wide = dataclasses.replace(known(mismatches=()), defect=ENTRY.model_copy(update={"id": "wide"}))
    explained = explain([wide, LOST], [cell("in-process", {"tokens_1": ("call_lost", "text_lost")})])
    assert {defect: sum(counts.values()) for defect, counts in explained.counts.items()} == {
        "wide": 2,
        "lost": 1,
    }
    assert not explained.unexplained


def test_entries_name_existing_families_and_cases() -> None:
    """The test of the extra `costs` checks the cases of the group `cost`."""
    assert missing_cases(lambda group: group != "cost") == []


def test_every_selector_names_mismatches() -> None:
    every = (selection for defect in parser_defects(load_defects()) for selection in defect.selections)
    assert [selection for selection in every if not selection.mismatches] == []


def test_a_mismatch_with_a_detail_explains_no_other_detail() -> None:
    leaked, any_kind = known(mismatches=("text_differs:leaked",)), known(mismatches=("text_differs",))
    run = [cell("in-process", {"tokens_1": ("text_differs:leaked", "text_differs:lost", "text_differs")})]
    assert [str(failure.mismatch) for _, _, failure in explain([leaked], run).unexplained] == [
        "text_differs:lost",
        "text_differs",
    ]
    assert not explain([any_kind], run).unexplained


def test_says_must_match_the_text_of_the_case() -> None:
    run = cell("in-process", {"tokens_1": ("call_lost",)})
    case = run.cases["call"].model_copy(update={"text": '{"s": "a\n</tool_call> b"}\n</tool_call>'})
    run = run.model_copy(update={"cases": {"call": case}})
    in_a_string = known(says='"[^"]*</tool_call>[^"]*"}')
    assert not explain([in_a_string], [run]).unexplained
    assert len(explain([known(says='"[^"]*<tool_call>')], [run]).unexplained) == 1
    assert not explain([known(says="a.</tool_call>")], [run]).unexplained


def test_the_error_of_an_invalid_selector_names_the_key() -> None:
    with pytest.raises(DefectsError, match=r"lost: failures: mismatches\.0: "):
        known(mismatches=("call_gone",))


def test_the_command_of_a_selection() -> None:
    (selection,) = LOST.selections
    assert selection.command == "vllm-harness regression --parsers hermes --cases canonical --only call"
    (line_ends,) = known(case="call, it's\n<x> in a string", served=True).selections
    assert shlex.split(line_ends.command)[-3:] == ["call, it's\n<x> in a string", "--engine", "http"]


def test_a_selector_names_a_forced_case_without_its_constraint() -> None:
    narrow = known(cases=("call",))
    forced = cell("in-process", {"tokens_1": ("call_lost",)})
    cases = {f"call, {how}": forced.cases["call"] for how in ("required", "named")}
    forced = forced.model_copy(update={"group": "forced", "cases": {**cases, "call": forced.cases["call"]}})
    explained = explain([narrow], [forced])
    assert explained.counts == {"lost": {("0.32.0", "in-process"): 2}}
