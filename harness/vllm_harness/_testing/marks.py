"""Marks for tests, as functions with types."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def known_defect(defect_id: str, *, models: Iterable[str] = ()) -> pytest.MarkDecorator:
    """Marks a test that states what is right and fails because of a known defect of vLLM.

    The mark is strict: once vLLM is right, the test fails with "fixed", and so it does where it fails in
    another way than the entry's pattern says.

    Example:
        @known_defect("vllm-46940")
        def test_status(vllm_server, openai_client): ...

    Args:
        defect_id: of an entry of the registry, or of the folder of --vllm-folder.
        models: model entries on which the test shows it; empty for all of the entry's.
    """
    settings = {"models": tuple(models)} if models else {}
    return pytest.mark.vllm_known_defect(defect_id, **settings)
