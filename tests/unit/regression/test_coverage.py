"""What of vLLM's parsers ran, as text."""

from __future__ import annotations

import pytest

from vllm_harness.regression.mutation.coverage import files_of, ranges
from vllm_harness.regression.mutation.unreached import Why, load_unreached, reasons


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([3], "3"), ([3, 4, 5, 9], "3-5, 9"), ([1, 3, 4], "1, 3-4"), ([1, 2], "1-2")],
)
def test_lines_are_told_as_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


def test_a_line_ran_that_ran_in_any_interpreter() -> None:
    def told(lines: list[int], missed: list[int], family: str) -> dict[str, object]:
        return {
            "executed_lines": lines,
            "missing_lines": missed,
            "executed_branches": [[line, line + 1] for line in lines],
            "missing_branches": [[line, line + 1] for line in missed],
            "contexts": {str(line): ["", family] for line in lines},
        }

    (one,) = files_of(
        [
            {"files": {"/site/vllm/parser/x.py": told([1, 2], [3, 4], "hermes"), "/e.py": told([], [], "")}},
            {"files": {"/site/vllm/parser/x.py": told([1, 3], [2, 4], "kimi_k2")}},
        ],
        lambda _: "",
    )
    assert (one.name, one.lines, one.branches, one.statements) == ("parser/x.py", 75.0, 75.0, 4)
    assert (one.missing, one.families) == ("4", ("hermes", "kimi_k2"))
    assert (one.reasons, one.explained) == ({}, 75.0)


SOURCE = """
def parse(text):
    try:
        return text[0]
    except IndexError:
        logger.warning("nothing")
        raise ValueError(
            "no text"
        )

def count():
    return 0
"""


def test_a_line_has_the_first_reason_that_holds() -> None:
    known = (
        Why(why="raises", shapes=("raise",)),
        Why(why="handles", shapes=("handler",), functions=("parse",)),
        Why(why="counts", functions=("cou*",), files=("parser/*.py",)),
    )
    found = reasons("parser/x.py", SOURCE, [4, 5, 6, 7, 8, 12], known)
    assert found == {5: "handles", 6: "handles", 7: "raises", 8: "raises", 12: "counts"}
    assert 12 not in reasons("reasoning/x.py", SOURCE, [12], known)


def test_a_reason_can_go_by_what_an_if_asks() -> None:
    source = "if a is None:\n    x = 1\nelif self.end in b:\n    x = 2\nelse:\n    x = 3\n"
    known = (Why(why="ended", branches=("self.end in *",)),)
    assert reasons("parser/x.py", source, [2, 4, 6], known) == {4: "ended"}


def test_every_reason_says_where_it_holds() -> None:
    assert all(one.shapes or one.functions or one.files or one.branches for one in load_unreached())
