"""The coverage of vLLM's parsers as text, and the reasons why some lines do not run."""

from __future__ import annotations

import pytest

from vllm_harness.extras.mutants.parsers.coverage import files_of, ranges
from vllm_harness.extras.mutants.parsers.unreached import UnreachedReason, load_unreached, reasons


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([3], "3"), ([3, 4, 5, 9], "3-5, 9"), ([1, 3, 4], "1, 3-4"), ([1, 2], "1-2")],
)
def test_lines_are_shown_as_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


def test_reports_of_several_interpreters_are_combined() -> None:
    def report(lines: list[int], missed: list[int], family: str) -> dict[str, object]:
        return {
            "executed_lines": lines,
            "missing_lines": missed,
            "executed_branches": [[line, line + 1] for line in lines],
            "missing_branches": [[line, line + 1] for line in missed],
            "contexts": {str(line): ["", family] for line in lines},
        }

    (file,) = files_of(
        [
            {
                "files": {
                    "/site/vllm/parser/x.py": report([1, 2], [3, 4], "hermes"),
                    "/e.py": report([], [], ""),
                }
            },
            {"files": {"/site/vllm/parser/x.py": report([1, 3], [2, 4], "kimi_k2")}},
        ],
        lambda _: "",
    )
    assert (file.name, file.lines, file.branches, file.statements) == ("parser/x.py", 75.0, 75.0, 4)
    assert (file.missing, file.families) == ("4", ("hermes", "kimi_k2"))
    assert (file.reasons, file.explained) == ({}, 75.0)


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


def test_a_line_has_the_first_reason_that_applies() -> None:
    known = (
        UnreachedReason(why="raises", shapes=("raise",)),
        UnreachedReason(why="handles", shapes=("handler",), functions=("parse",)),
        UnreachedReason(why="counts", functions=("cou*",), files=("parser/*.py",)),
    )
    by_line = reasons("parser/x.py", SOURCE, [4, 5, 6, 7, 8, 12], known)
    assert by_line == {5: "handles", 6: "handles", 7: "raises", 8: "raises", 12: "counts"}
    assert 12 not in reasons("reasoning/x.py", SOURCE, [12], known)


def test_a_reason_can_match_the_condition_of_an_if() -> None:
    source = "if a is None:\n    x = 1\nelif self.end in b:\n    x = 2\nelse:\n    x = 3\n"
    known = (UnreachedReason(why="ended", branches=("self.end in *",)),)
    assert reasons("parser/x.py", source, [2, 4, 6], known) == {4: "ended"}


def test_every_reason_has_a_condition() -> None:
    assert all(
        reason.shapes or reason.functions or reason.files or reason.branches for reason in load_unreached()
    )
