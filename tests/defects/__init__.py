"""Defects of vLLM's endpoints, reported or found in its code; each test states the correct behaviour."""

import pytest

pytest.register_assert_rewrite("tests.defects.wire")
