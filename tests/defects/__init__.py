"""Defects that were reported of vLLM's endpoints, or seen in its code: each test states what is right."""

import pytest

pytest.register_assert_rewrite("tests.defects.wire")
