"""Typed functions for the plugin's test markers."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def known_defect(defect_id: str, *, models: Iterable[str] = ()) -> pytest.MarkDecorator:
    """Marks a test that asserts the correct behaviour and fails because of a known defect of vLLM.

    The mark is strict: the test fails with the message "fixed" once vLLM behaves correctly, and also if its
    failure does not match the pattern of the defect's entry.

    Example:
        @known_defect("vllm-46940")
        def test_status(vllm_server, openai_client): ...

    Args:
        defect_id: the id of an entry, in the registry or in the folder of --vllm-folder.
        models: the model entries on which the test shows the defect; by default those of its entry.
    """
    settings = {"models": tuple(models)} if models else {}
    return pytest.mark.vllm_known_defect(defect_id, **settings)
