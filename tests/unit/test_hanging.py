"""What should end is judged by what happens meanwhile."""

from __future__ import annotations

import threading

import pytest

from tests.hanging import LATER, READING, ends


def until_it_is_read() -> None:
    """Waits as for an answer that the server gives after everything that is read."""
    for thread in threading.enumerate():
        if thread.name == READING:
            thread.join()


def fail() -> None:
    raise ConnectionError("reset")


def test_what_ends_is_returned() -> None:
    assert ends(lambda: "the end", until_it_is_read) == "the end"


def test_an_error_of_the_reading_is_raised() -> None:
    with pytest.raises(ConnectionError, match="reset"):
        ends(fail, until_it_is_read)


def test_what_never_ends_fails_after_the_later_answers() -> None:
    answers: list[None] = []
    over = threading.Event()
    with pytest.raises(pytest.fail.Exception, match=f"still open after {LATER} later answers"):
        ends(over.wait, lambda: answers.append(None))
    over.set()
    assert len(answers) == LATER
