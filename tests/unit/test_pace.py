"""The pace of a piece of work, by a clock that the test winds."""

from __future__ import annotations

from contextlib import suppress

import pytest

from vllm_harness._terminal.pace import Pace, minutes
from vllm_harness.cli.counting import counted


class Clock:
    """A clock that stands still until it is set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_rest_takes_as_long_as_what_followed_the_first() -> None:
    clock = Clock()
    pace = Pace(11, clock)
    clock.now += 30
    pace.advance()
    assert str(pace) == "0:30 elapsed"
    for _ in range(4):
        clock.now += 2
        pace.advance()
    assert pace.left_s == 6 * 2
    assert str(pace) == "0:38 elapsed, about 0:12 left"


def test_few_steps_of_many_say_nothing() -> None:
    clock = Clock()
    pace = Pace(1000, clock)
    for _ in range(30):
        assert pace.left_s is None
        clock.now += 1
        pace.advance()
    assert pace.left_s == 970


def test_nothing_is_left_at_the_end() -> None:
    clock = Clock()
    pace = Pace(2, clock)
    pace.advance()
    clock.now += 5
    pace.advance()
    assert pace.left_s == 0


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (70, "1:10"), (3599, "59:59"), (3670, "1:01:10")]
)
def test_durations(seconds: float, text: str) -> None:
    assert minutes(seconds) == text


def test_a_log_has_a_line_at_the_start_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with counted("cells", 2) as advance:
        advance()
        advance()
    captured = capsys.readouterr()
    assert captured.err.splitlines() == ["cells: 2 to do", "cells: 2 of 2 in 0:00"]
    assert not captured.out


def test_a_log_has_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    log = ""
    with counted("cells", 3, every_s=0.01) as advance:
        advance()
        while "cells: 1 of 3, 0:00 elapsed" not in log:  # pytest's timeout ends a test that never sees it
            log += capsys.readouterr().err
        advance()
        while "cells: 2 of 3, 0:00 elapsed, about 0:00 left" not in log:
            log += capsys.readouterr().err


def test_work_that_is_given_up_says_how_far_it_came(capsys: pytest.CaptureFixture[str]) -> None:
    with suppress(ValueError), counted("cells", 9) as advance:
        advance()
        raise ValueError
    assert capsys.readouterr().err.splitlines()[-1].startswith("cells: 1 of 9 in ")


def test_nothing_to_do_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with counted("cells", 0):
        pass
    assert not capsys.readouterr().err
