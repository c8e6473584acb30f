"""Output that must reach the terminal while pytest captures what tests print."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest


def uncaptured(config: pytest.Config) -> AbstractContextManager[None]:
    """A context in which pytest does not capture output."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    return capture.global_and_fixture_disabled() if capture else nullcontext()
