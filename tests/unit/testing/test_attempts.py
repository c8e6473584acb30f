"""The number of attempts at a test, which is one if the test is scripted or repeated."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from vllm_harness._configuration.model_entries import Limits, RunLane, load_models
from vllm_harness._configuration.targets import Target
from vllm_harness._errors import UsageError
from vllm_harness._testing.attempts import attempts_of, refuse_more


@pytest.mark.parametrize(
    ("lane", "repeats", "scripted", "attempts"),
    [
        ("scripted", 1, True, 1),
        ("live", 1, False, 3),
        ("live", 5, False, 1),
        ("attached", 1, False, 3),
        ("attached", 1, True, 1),
    ],
)
def test_attempts(lane: RunLane, repeats: int, scripted: bool, attempts: int) -> None:
    entry = load_models().get("qwen3").model_copy(update={"limits": Limits(live_attempts=3)})
    assert attempts_of(Target(entry, lane), repeats, scripted=scripted) == attempts


@pytest.mark.parametrize("given", [{"reruns": 1}, {"force_reruns": 1}])
def test_options_for_more_attempts_are_rejected(given: dict[str, object]) -> None:
    usual = {"reruns": None, "force_reruns": None}
    refuse_more(SimpleNamespace(**usual))
    with pytest.raises(UsageError, match="limits"):
        refuse_more(SimpleNamespace(**{**usual, **given}))
