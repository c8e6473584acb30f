"""The script books for upstream's test files, and the wrong answers made from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness._defects.registry import load_defects
from vllm_harness._errors import UsageError
from vllm_harness.extras.upstream.books import UpstreamBook, UpstreamRule, book_of, load_books
from vllm_harness.extras.upstream.faulty_answers import KINDS, read_kinds, wrong_answers

SAYS_A = UpstreamRule(say="a")
SAYS_B = UpstreamRule(say="b")


def test_every_book_names_a_test_file_and_known_defects() -> None:
    books = load_books()
    assert len(books) > 20
    for file, book in books.items():
        assert file.startswith("tests/")
        assert Path(file).name.startswith("test_")
        assert book.tests or book.defects or book.newer
        assert all(book.any_answer.values())
        shown = {known.id for known in book.defects.values()}
        assert shown | {*book.retried.values()} <= load_defects().keys()


def test_the_longest_matching_name_counts() -> None:
    book = UpstreamBook(
        file="tests/test_x.py",
        tests={"test_*": (SAYS_A,), "test_two[stream-*]": (SAYS_B,), "Class::test_two": ()},
        skips={"test_one": "why"},
    )
    says = {
        "test_one": ["a"],
        "test_one[x]": ["a"],
        "test_two[whole-x]": ["a"],
        "test_two[stream-x]": ["b"],
        "Class::test_two": [],
        "other": [],
    }
    for test, expected in says.items():
        assert [rule.say and rule.say.text for rule in book.rules(test)] == expected, test
    assert [rule.name for rule in book.rules("test_one[x]")] == ["test_one[x] 1"]
    assert book.skip("test_one[x]") == "why"
    assert book.skip("test_two[stream-x]") is None


def test_a_file_without_a_book_has_no_rules() -> None:
    known = next(file for file, book in load_books().items() if book.tests)
    assert book_of(Path("/somewhere") / known).tests
    assert not book_of(Path("/somewhere/tests/test_unknown.py")).tests


def test_the_line_of_an_unknown_key_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("file: tests/test_x.py\ntets: {}\n")
    with pytest.raises(UsageError, match=r"x\.yaml:2: tets"):
        load_books(tmp_path)


def test_wrong_answers_keep_the_conditions_of_a_rule() -> None:
    right = UpstreamRule(name="r", turns=("first", "second"), constrained=True, prompt=("Ada",))
    wrong = dict(wrong_answers(right))
    assert tuple(wrong) == KINDS
    assert [kind for kind, _ in wrong_answers(right, ("nothing",))] == ["nothing"]
    for kind, rules in wrong.items():
        for rule in rules:
            assert (rule.when, rule.constrained, rule.prompt) == (right.when, True, right.prompt)
            assert rule != right
            rule.as_rule(1, "")
        assert [rule.name for rule in rules][-1] == "r", kind
    assert [(rule.limit, rule.turns) for rule in wrong["truncated"]] == [(1, right.turns)]


def test_a_varying_answer_differs_the_first_time() -> None:
    first, others = dict(wrong_answers(UpstreamRule(name="r", say="right", times=3)))["varying"]
    assert (first.times, others.times) == (1, 3)
    assert len({first.name, others.name}) == 2
    assert first.say
    assert others.say
    assert first.say.text != others.say.text


def test_a_book_names_tests_that_check_only_the_form() -> None:
    book = UpstreamBook(file="tests/test_x.py", any_answer={"test_two": "it asserts only the status"})
    assert book.any_answer_for("test_two[x]") == "it asserts only the status"
    assert book.any_answer_for("test_one") is None


def test_an_unknown_kind_of_wrong_answer_is_refused() -> None:
    assert read_kinds("other,nothing") == ("other", "nothing")
    assert read_kinds("") == ()
    assert read_kinds("all") == KINDS
    assert read_kinds("thoughts,cut") == ("reasoning", "truncated")  # the names in versions before 0.2
    with pytest.raises(UsageError, match=r"(?s)'wrong'.*varying"):
        read_kinds("wrong")
