"""Trials of a soak are drawn by a seed, so that they can be repeated."""

from __future__ import annotations

import pytest

from tests.soak.commands import COMMANDS
from tests.soak.trials import VICTIMS, Trial, draw


def test_a_seed_draws_the_same_trials_again() -> None:
    assert draw(1, 7, list(VICTIMS)) == draw(1, 7, list(VICTIMS))
    assert draw(1, 7, list(VICTIMS)) != draw(2, 7, list(VICTIMS))
    assert draw(1, 7, list(VICTIMS)).share != draw(1, 15, list(VICTIMS)).share


def test_the_victims_take_turns() -> None:
    drawn = [draw(3, number, list(VICTIMS)) for number in range(400)]
    assert [trial.victim for trial in drawn] == list(VICTIMS) * 50
    assert {(trial.victim, trial.command) for trial in drawn} == {
        (victim, command) for victim, commands in VICTIMS.items() for command in commands
    }
    assert {trial.by for trial in drawn} == {"seconds", "lines"}


def test_each_command_can_be_drawn() -> None:
    assert {command for commands in VICTIMS.values() for command in commands} == COMMANDS.keys()


@pytest.mark.parametrize(
    ("by", "share", "moment"),
    [
        ("seconds", 0.25, (5.0, 0)),
        ("lines", 0.0, (0.0, 1)),
        ("lines", 0.5, (0.0, 6)),
        ("lines", 0.999, (0.0, 10)),
    ],
)
def test_a_moment_is_a_share_of_a_usual_run(by: str, share: float, moment: tuple[float, int]) -> None:
    trial = Trial(1, 0, "engine", "load", by, share, 0.5)  # type: ignore[arg-type]
    assert trial.moment(20.0, 11) == moment
