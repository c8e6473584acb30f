"""Attempts: on the live lane, a test with unexpected content runs again, a limited number of times."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_harness._configuration.targets import Target
from vllm_harness._errors import UsageError
from vllm_harness._testing.content import UnexpectedContent


def attempts_of(target: Target, repeats: int, *, scripted: bool) -> int:
    """How many times a test of the target may run: once if it is scripted or repeated."""
    return 1 if scripted or repeats > 1 else target.entry.limits.live_attempts


def limit(item: pytest.Item, attempts: int) -> None:
    """Marks a test for pytest-rerunfailures; the mark takes precedence over the test's own `flaky` mark."""
    mark = pytest.mark.flaky(reruns=attempts - 1, only_rerun=f"^{UnexpectedContent.__name__}: ")
    item.add_marker(mark, append=False)


def refuse_more(option: Any) -> None:
    """Raises UsageError for options of pytest-rerunfailures, which would exceed the limit."""
    if option.reruns or getattr(option, "force_reruns", None):
        raise UsageError(
            "the number of attempts per test is set in models.yaml (limits.live_attempts)",
            hint="leave out --reruns and --force-reruns",
        )
