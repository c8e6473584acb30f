"""The table of a parser regression run, on terminals of several widths and in a pipe."""

from __future__ import annotations

import pytest

from tests.screens import Screen
from vllm_harness._defects.entry import Defect
from vllm_harness._regression.cases.case import Group, Topic
from vllm_harness._regression.results.cells import CaseResult, Cell
from vllm_harness._regression.results.compare import baseline_of
from vllm_harness._regression.results.known_defects import ParserDefect, by_family, parser_defects
from vllm_harness._terminal.tables import plain_console
from vllm_harness.cli.regression_table import LEGEND, show_cells

PASSED = CaseResult(topic=Topic.CALLS, text="x", deliveries=9)
FAILED = CaseResult.model_validate(
    {"topic": "calls", "text": "x", "mismatches": {"tokens_1": ("call_lost",)}}
)
OUT = CaseResult(topic=Topic.LEFT_OUT, left_out="the format cannot express it")
GROUPS: tuple[Group, ...] = ("canonical", "forced", "chunks", "malformed")


def cell(family: str, group: Group, environment: str = "0.32.0", start_error: str | None = None) -> Cell:
    cases = {f"passed {n}": PASSED for n in range(100)} | {"failed": FAILED, "out": OUT}
    return Cell(
        environment=environment,
        described=f"release vllm {environment}",
        family=family,
        tool_parser=family,
        reasoning_parser="deepseek_r1",
        group=group,
        tokenizer="synthetic",
        engine="in-process",
        cases_digest="abc",
        start_error=start_error,
        cases={} if start_error else cases,
    )


def shown(
    cells: list[Cell],
    width: int,
    *,
    terminal: bool = True,
    baseline: bool = False,
    defects: dict[str, list[ParserDefect]] | None = None,
) -> list[str]:
    screen = Screen(terminal=terminal)
    known = baseline_of("0.32.0", cells) if baseline else None
    show_cells(plain_console(screen, width=width), cells, known, defects or {})
    return screen.lines


CELLS = [cell(family, group) for family in ("hermes", "deepseek_v31_unthinking") for group in GROUPS]


@pytest.mark.parametrize("width", [80, 100])
def test_a_family_is_one_line_of_80_columns(width: int) -> None:
    lines = shown(CELLS, width)
    assert lines[0].split() == ["family", *GROUPS]
    assert lines[2].split() == ["hermes", *["100/0/1/1"] * 4]
    assert all(len(line) <= 80 for line in lines)
    assert LEGEND in lines


@pytest.mark.parametrize(("width", "terminal"), [(60, False), (80, False), (140, True)])
def test_the_parsers_are_shown_if_the_columns_fit(width: int, terminal: bool) -> None:
    lines = shown(CELLS, width, terminal=terminal)
    assert lines[2].split() == ["hermes", *["100/0/1/1"] * 4, "hermes", "deepseek_r1", "synthetic"]


def test_60_columns_show_a_block_for_each_family() -> None:
    lines = shown(CELLS, 60)
    at = lines.index("hermes")
    assert [line.split() for line in lines[at + 1 : at + 5]] == [[group, "100/0/1/1"] for group in GROUPS]


def test_environments_share_a_table_if_it_fits() -> None:
    both = [*CELLS, *(cell("hermes", group, "0.31.0") for group in GROUPS)]
    lines = shown(both, 80)
    assert lines[0] == "0.31.0:"
    assert [line.split() for line in lines if line.startswith("hermes")] == [
        ["hermes", *["100/0/1/1"] * 4]
    ] * 2
    (row,) = (line for line in shown(both, 80, terminal=False) if line.startswith("hermes"))
    assert row.split()[1:9] == ["100/0/1/1"] * 8
    (row,) = (line for line in shown(both, 80, terminal=False) if line.startswith("deepseek_v31"))
    assert row.split()[1:9] == ["-"] * 4 + ["100/0/1/1"] * 4


def test_a_failure_of_the_baseline_is_known() -> None:
    assert shown(CELLS, 80, baseline=True)[2].split() == ["hermes", *["100/1/0/1"] * 4]


@pytest.mark.parametrize(("mismatch", "counts"), [("call_lost", "100/1/0/1"), ("text_lost", "100/0/1/1")])
def test_a_failure_that_a_known_defect_explains_is_known(mismatch: str, counts: str) -> None:
    selector = {"families": ["hermes"], "case": "failed", "mismatches": [mismatch]}
    entry = {"id": "lost", "title": "x", "class": "defect", "failures": [selector]}
    defects = by_family(parser_defects({"lost": Defect.model_validate(entry)}))
    assert shown(CELLS, 80, defects=defects)[2].split() == ["hermes", *[counts] * 4]


def test_the_reason_for_parsers_not_created_is_below_the_table() -> None:
    lines = shown([cell("hermes", "canonical", start_error="KeyError: [red]\nno such parser")], 80)
    assert lines[1].split()[:2] == ["hermes", "not"]
    assert "not created: hermes, canonical on 0.32.0: KeyError: [red]" in lines


def test_answers_that_were_not_judged_are_counted_below_the_table() -> None:
    merged = {"topic": "calls", "not_held": {"chat:tokens_1": "vLLM took [2]"}}
    cases = {name: CaseResult.model_validate({**merged, "deliveries": name == "b"}) for name in "ab"}
    rust = cell("hermes", "canonical", "0.33.0+rust").model_copy(update={"cases": cases})
    lines = shown([rust], 200, terminal=False)
    assert lines[1].split()[:2] == ["hermes", "1/0/0/0"]
    assert (
        "not judged on 0.33.0+rust: answers: 2; cases with no judged answer: 1; "
        "the first: hermes, canonical, a, chat:tokens_1: vLLM took [2]"
    ) in lines
