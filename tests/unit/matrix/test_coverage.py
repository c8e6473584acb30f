"""What of vLLM's parsers ran, as text."""

from __future__ import annotations

import pytest

from harness.matrix.coverage import ranges


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([3], "3"), ([3, 4, 5, 9], "3-5, 9"), ([1, 3, 4], "1, 3-4"), ([1, 2], "1-2")],
)
def test_lines_are_told_as_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text
