"""Tests for defects in vLLM's endpoints, reported or found in its code; they expect correct behaviour."""

import pytest

pytest.register_assert_rewrite("tests.defects.wire")
