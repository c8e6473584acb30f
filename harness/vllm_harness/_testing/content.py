"""Content: the words of the model, as opposed to the protocol of the server."""

from __future__ import annotations


class UnexpectedContent(AssertionError):
    """The model's words are not what a test expects; on the live lane such a test may run again."""


def expect_content(condition: object, message: str) -> None:
    """Asserts something about the model's words.

    On the live lane a test that fails in this way runs again, up to the entry's `limits.live_attempts`, and
    each retry is counted. On the scripted lane no test runs again, so this is a plain assertion there.

    Args:
        condition: what must be true.
        message: what was expected, and what the model said.

    Raises:
        AssertionError: the condition is not true.
    """
    if not condition:
        raise UnexpectedContent(message)
