"""Whether something ends is judged by what happens in the meantime, not by a clock."""

from __future__ import annotations

import threading

import pytest

from tests.hanging import LATER, READING, ends


def until_it_is_read() -> None:
    """Stands for a later request: returns once everything has been read."""
    for thread in threading.enumerate():
        if thread.name == READING:
            thread.join()


def fail() -> None:
    raise ConnectionError("reset")


def test_the_result_is_returned_if_the_reading_ends() -> None:
    assert ends(lambda: "the end", until_it_is_read) == "the end"


def test_a_read_error_is_raised() -> None:
    with pytest.raises(ConnectionError, match="reset"):
        ends(fail, until_it_is_read)


def test_what_never_ends_fails_after_the_later_answers() -> None:
    answers: list[None] = []
    over = threading.Event()
    with pytest.raises(pytest.fail.Exception, match=f"still open after {LATER} later answers"):
        ends(over.wait, lambda: answers.append(None))
    over.set()
    assert len(answers) == LATER
