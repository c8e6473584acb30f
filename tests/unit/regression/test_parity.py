"""Two front ends on the same cases: which is right."""

from __future__ import annotations

import pytest

from tests.screens import Screen
from vllm_harness.cli.regression_table import show_parity
from vllm_harness.defects.entry import Defect
from vllm_harness.regression.results.cells import CaseResult, Cell
from vllm_harness.regression.results.explained import parser_defects
from vllm_harness.regression.results.parity import Parity, parity
from vllm_harness.terminal.tables import plain_console

LOST = Defect.model_validate(
    {
        "id": "lost",
        "title": "A call is lost",
        "class": "defect",
        "failures": [{"families": ["hermes"], "case": "call", "mismatches": ["call_lost"]}],
    }
)


def answer(digest: str, *mismatches: str, text: str = "said") -> CaseResult:
    """A case in one delivery."""
    return CaseResult.model_validate(
        {
            "topic": "calls",
            "text": text,
            "deliveries": 1,
            "digests": {"chat:whole": digest},
            "mismatches": {"chat:whole": mismatches} if mismatches else {},
            "examples": {"chat:whole": f"answer {digest}"} if mismatches else {},
        }
    )


def cell(cases: dict[str, CaseResult], start_error: str | None = None) -> Cell:
    place = {"environment": "0.33.0@0.32.0", "described": "any", "family": "hermes", "group": "canonical"}
    parsers = {"tool_parser": "hermes", "reasoning_parser": None, "tokenizer": "synthetic"}
    fields = {"engine": "http", "cases_digest": "any", "start_error": start_error, "cases": cases}
    return Cell.model_validate({**place, **parsers, **fields})


def compared(python: CaseResult, rust: CaseResult) -> Parity:
    return parity(parser_defects({LOST.id: LOST}), [cell({"call": python})], [cell({"call": rust})])


@pytest.mark.parametrize(
    ("python", "rust", "verdict", "judged"),
    [
        (answer("a"), answer("b", "text_lost"), "python right", True),
        (answer("a", "text_lost"), answer("b"), "rust right", True),
        (answer("a", "text_lost"), answer("a", "text_lost"), "both wrong, alike", True),
        (answer("a", "text_lost"), answer("b", "text_lost"), "both wrong, differently", False),
        (answer("a", "call_lost"), answer("b", "text_lost"), "both wrong, differently", False),
        (answer("a", "call_lost"), answer("b", "call_lost"), "both wrong, differently", True),
        (answer("a"), answer("b"), "both right, written otherwise", True),
    ],
)
def test_each_difference_has_a_verdict(
    python: CaseResult, rust: CaseResult, verdict: str, judged: bool
) -> None:
    found = compared(python, rust)
    assert [(each.verdict.value, each.judged) for each in found.classes] == [(verdict, judged)]


def test_the_same_right_answers_are_no_difference() -> None:
    assert compared(answer("a"), answer("a")) == Parity(answers=1, classes=(), not_served={})


def test_a_class_has_its_count_its_defects_and_its_smallest_answer() -> None:
    python = {
        "long": answer("a", text="a long text"),
        "short": answer("a", text="short"),
        "only": answer("a"),
    }
    rust = {name: answer("b", "call_lost") for name in ("long", "short")}
    (found,) = parity(parser_defects({LOST.id: LOST}), [cell(python)], [cell(rust)]).classes
    assert (found.count, found.families, found.defects, found.unexplained) == (2, ("hermes",), ("lost",), 0)
    assert (found.smallest.case, found.smallest.rust.example) == ("short", "answer b")
    unknown = {name: answer("b", "text_lost") for name in rust}
    (found,) = parity(parser_defects({LOST.id: LOST}), [cell(python)], [cell(unknown)]).classes
    assert (found.defects, found.unexplained) == ((), 2)


def test_a_family_that_a_front_end_does_not_serve_is_named() -> None:
    found = parity((), [cell({"call": answer("a")})], [cell({}, start_error="StartupError: no such parser")])
    assert found == Parity(answers=0, classes=(), not_served={"hermes": "rust: StartupError: no such parser"})


def test_classes_are_shown_with_what_both_say() -> None:
    screen = Screen(terminal=False)
    show_parity(plain_console(screen), compared(answer("a", "text_lost"), answer("b", "text_lost")))
    assert screen.lines[1].split()[:6] == ["both", "wrong,", "differently", "1", "1", "1"]
    assert screen.lines[2:] == [
        "both wrong, differently: hermes, canonical, call, chat:whole: said",
        "  python: text_lost: answer a",
        "  rust: text_lost: answer b",
        "1 answers of each front end compared, 1 not the same and right; 1 without judgement",
    ]
