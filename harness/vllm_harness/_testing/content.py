"""Content: the words of the model, as against how the server transports them."""

from __future__ import annotations


class UnexpectedContent(AssertionError):
    """The model's words are not the ones a test wants; on the live lane such a test may be tried again."""


def expect_content(condition: object, message: str) -> None:
    """Asserts something about the model's words.

    On the scripted lane nothing is ever retried, so there it is a plain assertion.

    Args:
        condition: what must be true.
        message: what was expected, and what came.

    Raises:
        UnexpectedContent: it is not true; on the live lane the whole test is tried again, up to the entry's
            `limits.live_attempts`, and each retry is counted.
    """
    if not condition:
        raise UnexpectedContent(message)
