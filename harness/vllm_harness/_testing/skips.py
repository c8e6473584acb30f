"""Skips with reason codes, which are counted by model; an unexpected skip is a failure."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NoReturn

import pytest

SLOW = "slow"
NOT_SERVED = "not-served"
OTHER_DEVICE = "other-device"
"""The code to skip a test for servers on CPU if its server runs on CUDA, or vice versa."""

_CODED = re.compile(r"(?:Skipped: )?\[([a-z0-9][a-z0-9-]*)\] ")


def coded(code: str, reason: str) -> str:
    """A reason with its code: `[image-cpu] no vision tower runs on CPU`."""
    return f"[{code}] {reason}"


def skip(code: str, reason: str) -> NoReturn:
    """Skips the running test.

    Args:
        code: lower-case words joined by `-`. The model entry must list it in `expected_skips`.
        reason: one sentence.

    Raises:
        ValueError: the code does not have this form.
    """
    if not _CODED.match(coded(code, "")):
        raise ValueError(f"{code!r} is not a reason code: lower-case words joined by '-'")
    pytest.skip(coded(code, reason))


def code_of(reason: str) -> str | None:
    """The code of a skip's reason; None if it has none."""
    match = _CODED.match(reason)
    return match[1] if match else None


def objection(reason: str, expected: Collection[str]) -> str | None:
    """The reason why a skip is not allowed; None if it is allowed.

    Args:
        reason: the reason, as pytest reports it.
        expected: the codes that are allowed.
    """
    code = code_of(reason)
    if code is None:
        return f"a skip without a reason code: {reason} (use vllm_harness.skip)"
    if code not in expected:
        return f"a skip that models.yaml does not expect for this entry (expected_skips): {reason}"
    return None
