"""Every model entry that does not speak Harmony, over Chat Completions."""

import pytest

from tests.behaviours.chat import *  # noqa: F403

pytestmark = pytest.mark.standard
