"""Marks for tests, as functions with types: a wrong argument raises where it is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from vllm_harness.testing.defects import KnownDefect


def known_defect(
    reference: str,
    *,
    versions: str,
    why: str,
    models: Iterable[str] = (),
    raises: type[BaseException] | tuple[type[BaseException], ...] | None = None,
) -> pytest.MarkDecorator:
    """Marks a test that states what is right and fails because of a known defect of vLLM.

    The mark is strict: once vLLM is right, the test fails with "fixed: remove the mark".

    Example:
        @known_defect("vllm#12345", versions=">=0.22,<0.33", why="the last chunk has no usage")
        def test_usage(vllm_server, openai_client): ...

    Args:
        reference: upstream issue (`vllm#12345`), or `unreported (short words)`.
        versions: vLLM versions that have it, as in PEP 440.
        why: one line.
        models: model entries that show it; empty for all.
        raises: what the test fails with; by default what a wrong server can cause.

    Raises:
        UsageError: `versions` is no version specifier.
    """
    settings: dict[str, Any] = {"versions": versions, "why": why, "models": tuple(models)}
    if raises is not None:
        settings["raises"] = raises
    KnownDefect.of(reference, **settings)
    return pytest.mark.vllm_known_defect(reference, **settings)
