"""Words that must reach the terminal while pytest captures what tests print."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest


def uncaptured(config: pytest.Config) -> AbstractContextManager[None]:
    """Lets what is printed through to the terminal."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    return capture.global_and_fixture_disabled() if capture else nullcontext()
