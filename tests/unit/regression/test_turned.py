"""The defects that a change has turned."""

from __future__ import annotations

from tests.screens import Screen
from vllm_harness._defects.entry import Defect
from vllm_harness._regression.results.cells import CaseResult, Cell
from vllm_harness._regression.results.explained import parser_defects
from vllm_harness._regression.results.turned import turned
from vllm_harness._terminal.tables import plain_console
from vllm_harness.cli.regression_table import show_turned

Mismatches = dict[str, dict[str, tuple[str, ...]]]


def entry(name: str, mismatch: str) -> Defect:
    selector = {"families": ["hermes"], "case": "call", "mismatches": [mismatch]}
    return Defect.model_validate({"id": name, "title": name, "class": "defect", "failures": [selector]})


KNOWN = parser_defects({name: entry(name, f"{name}_lost") for name in ("call", "text")})


def cell(**mismatches: dict[str, tuple[str, ...]]) -> Cell:
    place = {"environment": "0.32.0", "described": "any", "family": "hermes", "group": "canonical"}
    parsers = {"tool_parser": "hermes", "reasoning_parser": None, "tokenizer": "synthetic"}
    cases = {
        name: CaseResult.model_validate({"topic": "calls", "mismatches": found})
        for name, found in mismatches.items()
    }
    return Cell.model_validate(
        {**place, **parsers, "engine": "in-process", "cases_digest": "any", "cases": cases}
    )


def found(before: Cell, after: Cell) -> list[tuple[str | None, str, int, int, int]]:
    return [
        (each.defect.id if each.defect else None, each.turn.value, each.before, each.gone, each.new)
        for each in turned(KNOWN, [before], [after])
    ]


BOTH = {"whole": ("call_lost",), "tokens_1": ("call_lost", "text_lost")}


def test_a_defect_is_fixed_when_all_its_failures_are_gone_else_in_part() -> None:
    assert found(cell(a=BOTH), cell(a={})) == [("call", "fixed", 2, 2, 0), ("text", "fixed", 1, 1, 0)]
    assert found(cell(a=BOTH), cell(a={"tokens_1": ("call_lost", "text_lost")})) == [
        ("call", "fixed in part", 2, 1, 0)
    ]
    assert found(cell(a=BOTH, b=BOTH), cell(a=BOTH, b=BOTH)) == []


def test_new_failures_are_a_regression_with_or_without_an_id() -> None:
    assert found(cell(a={}), cell(a={"whole": ("text_lost", "text_cut")})) == [
        (None, "regression", 0, 0, 1),
        ("text", "regression", 0, 0, 1),
    ]
    assert found(cell(a=BOTH), cell(a={"all": ("call_lost",)}))[0] == ("call", "regression", 2, 2, 1)


def test_only_cases_that_ran_on_both_sides_count() -> None:
    made, not_made = cell(a=BOTH), cell().model_copy(update={"start_error": "KeyError"})
    assert found(made, not_made) == []
    assert found(cell(a=BOTH, b={}), cell(b={}, c=BOTH)) == []


def test_what_turned_is_shown_by_id() -> None:
    screen = Screen(terminal=False)
    show_turned(plain_console(screen), turned(KNOWN, [cell(a=BOTH)], [cell(a={"whole": ("text_cut",)})]))
    rows = [line.split()[:6] for line in screen.lines[1:4]]
    assert rows == [
        ["regression", "0", "0", "1", "hermes", "-"],
        ["fixed", "2", "2", "0", "hermes", "call"],
        ["fixed", "1", "1", "0", "hermes", "text"],
    ]
