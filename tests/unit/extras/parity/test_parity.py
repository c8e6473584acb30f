"""The comparison of two front ends, which answer the same cases."""

from __future__ import annotations

import pytest

from tests.screens import Screen
from vllm_harness._defects.entry import Defect
from vllm_harness._regression.results.cells import CaseResult, Cell
from vllm_harness._regression.results.known_defects import parser_defects
from vllm_harness._terminal.tables import plain_console
from vllm_harness.extras.parity.judging import FamilyParity, Parity, parity
from vllm_harness.extras.parity.table import show_parity


def lost(id_: str, *frontends: str) -> Defect:
    """A defect that makes these front ends lose a call."""
    failures = [{"families": ["hermes"], "case": "call", "mismatches": ["call_lost"]}]
    entry = {"id": id_, "title": "A call is lost", "class": "defect", "failures": failures}
    return Defect.model_validate({**entry, "frontends": frontends})


KNOWN = parser_defects({each.id: each for each in (lost("lost", "python"), lost("lost-in-rust", "rust"))})


def answer(digest: str, *mismatches: str, text: str = "said") -> CaseResult:
    """The result of a case in one delivery; the digest also serves as the example."""
    return CaseResult.model_validate(
        {
            "topic": "calls",
            "text": text,
            "deliveries": 1,
            "digests": {"chat:whole": digest},
            "mismatches": {"chat:whole": mismatches} if mismatches else {},
            "examples": {"chat:whole": digest},
        }
    )


def cell(cases: dict[str, CaseResult], frontend: str = "python", start_error: str | None = None) -> Cell:
    place = {"environment": "0.33.0@0.32.0", "described": "any", "family": "hermes", "group": "canonical"}
    parsers = {"tool_parser": "hermes", "reasoning_parser": None, "tokenizer": "synthetic"}
    fields = {"engine": "http", "frontend": frontend, "cases_digest": "any", "start_error": start_error}
    return Cell.model_validate({**place, **parsers, **fields, "cases": cases})


def compared(python: CaseResult, rust: CaseResult) -> Parity:
    return parity(KNOWN, [cell({"call": python})], [cell({"call": rust}, "rust")])


@pytest.mark.parametrize(
    ("python", "rust", "verdict", "unjudged"),
    [
        (answer("a"), answer("b", "call_lost"), "python right", 0),
        (answer("a"), answer("b", "text_lost"), "python right", 1),
        (answer("a", "call_lost"), answer("b"), "rust right", 0),
        (answer("a", "text_lost"), answer("b"), "rust right", 1),
        (answer("a", "call_lost"), answer("a", "call_lost"), "both wrong, alike", 0),
        (answer("a", "text_lost"), answer("a", "text_lost"), "both wrong, alike", 1),
        (answer("a", "call_lost"), answer("b", "call_lost"), "both wrong, differently", 0),
        (answer("a", "call_lost"), answer("b", "text_lost"), "both wrong, differently", 1),
        (answer('{"a": 1}'), answer('{"a":1}'), "both right, different white space", 0),
        (answer('{"content": "\\n", "a": 1}'), answer('{"a":1}'), "both right, different white space", 0),
        (answer('{"a": 1}'), answer('{"a": 1.0}'), "both right, written differently", 0),
    ],
)
def test_verdicts(python: CaseResult, rust: CaseResult, verdict: str, unjudged: int) -> None:
    result = compared(python, rust)
    assert [(each.verdict.value, each.unjudged) for each in result.classes] == [(verdict, unjudged)]
    assert (result.unjudged, result.families[0].verdicts) == (unjudged, {verdict: 1})


def test_a_defect_of_the_other_front_end_explains_nothing() -> None:
    in_python = parser_defects({"lost": lost("lost", "python")})
    rust = [cell({"call": answer("b", "call_lost")}, "rust")]
    assert parity(in_python, [cell({"call": answer("a")})], rust).unjudged == 1


def test_equal_right_answers() -> None:
    same = FamilyParity(family="hermes", answers=1, verdicts={})
    assert compared(answer("a"), answer("a")) == Parity(families=(same,), classes=(), not_served={})


@pytest.mark.parametrize("python", [answer("a"), answer("a", "call_lost")])
def test_merged_answers_are_not_compared(python: CaseResult) -> None:
    fields = {"topic": "calls", "not_held": {"chat:whole": "vLLM took [2]"}}
    merged, partly = (CaseResult.model_validate({**fields, "deliveries": count}) for count in (0, 1))
    for rust in (merged, partly):
        result = compared(python, rust)
        assert (result.classes, result.not_held, result.unjudged) == ((), 1, 0)
    assert compared(python, merged).answers == 0


def test_class_of_differences() -> None:
    python = {
        "long": answer("a", text="a long text"),
        "short": answer("a", text="short"),
        "only": answer("a"),
    }
    rust = {name: answer("b", "call_lost") for name in ("long", "short")}
    (difference,) = parity(KNOWN, [cell(python)], [cell(rust, "rust")]).classes
    assert (difference.count, difference.families, difference.defects) == (2, ("hermes",), ("lost-in-rust",))
    assert (difference.smallest.case, difference.smallest.rust.example) == ("short", "b")


def test_family_that_a_front_end_does_not_serve() -> None:
    refused = cell({}, "rust", start_error="StartupError: no")
    result = parity((), [cell({"call": answer("a")})], [refused], {"dots": "rust has no such parser"})
    assert (result.answers, result.not_served) == (
        0,
        {"dots": "rust has no such parser", "hermes": "rust: StartupError: no"},
    )


def test_table() -> None:
    screen = Screen(terminal=False)
    show_parity(plain_console(screen), compared(answer("a", "text_lost"), answer("b", "call_lost")))
    assert [line.split() for line in screen.lines[:4]] == [
        ["same", "and", "python", "rust", "both", "both", "right,"],
        ["family", "answers", "right", "right", "right", "wrong", "not", "the", "same"],
        ["hermes", "1", "0", "-", "-", "1", "-"],
        [],
    ]
    assert screen.lines[4:] == [
        "both wrong, differently (hermes): 1 in all, 1 without a known defect",
        "  Python: text_lost, the text is lost",
        "  Rust: call_lost, a call is lost",
        "  known: lost-in-rust",
        "  such as hermes, canonical, call, chat:whole",
        "    the model says: said",
        "    Python answers: a",
        "    Rust answers: b",
        "",
        "compared answers of each front end: 1 (families: 1); same and right: 0; "
        "both wrong, differently: 1. classes of differences: 1; answers without a known defect: 1",
    ]
