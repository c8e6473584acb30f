"""The pace of a long task, with a clock that the test sets, and the progress lines of a command."""

from __future__ import annotations

from contextlib import suppress

import pytest

from vllm_harness._terminal.pace import Pace, minutes
from vllm_harness.cli.counting import counted


class Clock:
    """A clock that only the test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_first_step_does_not_count() -> None:
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


def test_there_is_no_estimate_after_few_steps() -> None:
    clock = Clock()
    pace = Pace(1000, clock)
    for _ in range(30):
        assert pace.left_s is None
        clock.now += 1
        pace.advance()
    assert pace.left_s == 970


def test_the_rest_is_0_at_the_end() -> None:
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


def test_a_log_has_lines_in_between(capsys: pytest.CaptureFixture[str]) -> None:
    log = ""
    with counted("cells", 3, every_s=0.01) as advance:
        advance()
        while "cells: 1 of 3, 0:00 elapsed" not in log:  # pytest's timeout ends an endless loop
            log += capsys.readouterr().err
        advance()
        while "cells: 2 of 3, 0:00 elapsed, about 0:00 left" not in log:
            log += capsys.readouterr().err


def test_interrupted_work_shows_what_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    with suppress(ValueError), counted("cells", 9) as advance:
        advance()
        raise ValueError
    assert capsys.readouterr().err.splitlines()[-1].startswith("cells: 1 of 9 in ")


def test_no_work_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with counted("cells", 0):
        pass
    assert not capsys.readouterr().err
