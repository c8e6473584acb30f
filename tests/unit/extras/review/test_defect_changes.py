"""Which known defects a change to vLLM fixes or makes worse."""

from __future__ import annotations

from vllm_harness._defects.entry import Defect
from vllm_harness._regression.results.cells import CaseResult, Cell
from vllm_harness._regression.results.known_defects import parser_defects
from vllm_harness.extras.review.defect_changes import changed_defects

Mismatches = dict[str, dict[str, tuple[str, ...]]]


def entry(name: str, mismatch: str) -> Defect:
    selector = {"families": ["hermes"], "case": "call", "mismatches": [mismatch]}
    return Defect.model_validate({"id": name, "title": name, "class": "defect", "failures": [selector]})


KNOWN = parser_defects({name: entry(name, f"{name}_lost") for name in ("call", "text")})


def cell(**mismatches: dict[str, tuple[str, ...]]) -> Cell:
    place = {"environment": "0.32.0", "described": "any", "family": "hermes", "group": "canonical"}
    parsers = {"tool_parser": "hermes", "reasoning_parser": None, "tokenizer": "synthetic"}
    cases = {
        name: CaseResult.model_validate({"topic": "calls", "mismatches": by_delivery})
        for name, by_delivery in mismatches.items()
    }
    return Cell.model_validate(
        {**place, **parsers, "engine": "in-process", "cases_digest": "any", "cases": cases}
    )


def changes(before: Cell, after: Cell) -> list[tuple[str | None, str, int, int, int]]:
    return [
        (
            changed.defect.id if changed.defect else None,
            changed.change.value,
            changed.before,
            changed.gone,
            changed.new,
        )
        for changed in changed_defects(KNOWN, [before], [after])
    ]


BOTH = {"whole": ("call_lost",), "tokens_1": ("call_lost", "text_lost")}


def test_a_defect_is_fixed_in_part_until_all_failures_are_gone() -> None:
    assert changes(cell(a=BOTH), cell(a={})) == [("call", "fixed", 2, 2, 0), ("text", "fixed", 1, 1, 0)]
    assert changes(cell(a=BOTH), cell(a={"tokens_1": ("call_lost", "text_lost")})) == [
        ("call", "fixed in part", 2, 1, 0)
    ]
    assert changes(cell(a=BOTH, b=BOTH), cell(a=BOTH, b=BOTH)) == []


def test_new_failures_are_a_regression() -> None:
    assert changes(cell(a={}), cell(a={"whole": ("text_lost", "text_cut")})) == [
        (None, "regression", 0, 0, 1),
        ("text", "regression", 0, 0, 1),
    ]
    assert changes(cell(a=BOTH), cell(a={"all": ("call_lost",)}))[0] == ("call", "regression", 2, 2, 1)


def test_only_cases_in_both_runs_are_compared() -> None:
    made, not_made = cell(a=BOTH), cell().model_copy(update={"start_error": "KeyError"})
    assert changes(made, not_made) == []
    assert changes(cell(a=BOTH, b={}), cell(b={}, c=BOTH)) == []
