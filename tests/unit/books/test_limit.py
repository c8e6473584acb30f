"""A rule's token limit lowers the field with which each API limits an answer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.books.served import conversations


@pytest.mark.parametrize(
    ("path", "given", "expected"),
    [
        ("/v1/responses", {}, {"max_output_tokens": 3}),
        ("/v1/responses", {"max_output_tokens": 2}, {"max_output_tokens": 2}),
        ("/v1/chat/completions", {}, {"max_completion_tokens": 3}),
        ("/v1/chat/completions", {"max_tokens": 9}, {"max_tokens": 3}),
        ("/v1/chat/completions", {"max_tokens": None}, {"max_tokens": None, "max_completion_tokens": 3}),
        ("/v1/chat/completions", {"min_tokens": 4}, {"min_tokens": 4, "max_completion_tokens": 4}),
        ("/invocations", {}, {"max_completion_tokens": 3}),
        ("/v1/messages", {"max_tokens": 100}, {"max_tokens": 3}),
        ("/v1/completions", {"max_tokens": "many"}, {"max_tokens": 3}),
    ],
)
def test_a_limit_only_lowers_that_of_the_request(
    path: str, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert conversations.limited(path, given, 3) == expected
    assert conversations.limited(path, given, None) == given
