"""The async fixture without pytest-asyncio: it fails, and names what to install."""

from __future__ import annotations

from typing import NoReturn

import pytest


@pytest.fixture
def async_openai_client() -> NoReturn:
    """An async openai client for the server; it needs pytest-asyncio."""
    pytest.fail(
        "async_openai_client needs pytest-asyncio, which is not installed, or disabled: "
        "pip install 'vllm-harness[asyncio]'",
        pytrace=False,
    )
